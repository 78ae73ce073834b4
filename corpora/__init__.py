"""Text comes in: sources, cleaning, words, bundled samples.

In: files, folders, data sets of the hub, presets, or a sample. Out: clean documents, each with a stable id.
What was repaired or left out is counted. Everything that is not what it should be raises `CorpusError`, which names the
file and the line or row.
"""

from spectool.corpora.documents import Document, OnError, ReadCounts, in_valid
from spectool.corpora.files import InputDescription
from spectool.corpora.samples import PRESETS, Preset, read_sample, sample_names, sample_path
from spectool.corpora.sources import Corpus, open_corpus
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
