"""Text comes in: sources, cleaning, splits, words, bundled samples.

In: files, folders, archives, data sets of the hub, presets, or a sample. Out: clean documents, each with a stable id.
What was repaired or left out is counted.
"""

from spectool.corpora.documents import Document, OnError, ReadCounts
from spectool.corpora.files import InputDescription
from spectool.corpora.samples import PRESETS, Preset, read_sample, sample_names, sample_path
from spectool.corpora.sources import Corpus, open_corpus
from spectool.corpora.split import in_valid
from spectool.corpora.words import word_runs, words

__all__ = [
    "PRESETS",
    "Corpus",
    "Document",
    "InputDescription",
    "OnError",
    "Preset",
    "ReadCounts",
    "in_valid",
    "open_corpus",
    "read_sample",
    "sample_names",
    "sample_path",
    "word_runs",
    "words",
]
