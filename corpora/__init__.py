"""Text comes in: sources, cleaning, bundled samples.

In: files, folders, or a sample. Out: clean documents, each with a stable id.
What was cleaned or left out is counted. Damaged text raises `CorpusError`, which names the file and the line or row.
"""

from spectool.corpora.documents import Document
from spectool.corpora.sources import Corpus, open_corpus, sample_names, sample_path

__all__ = ["Corpus", "Document", "open_corpus", "sample_names", "sample_path"]
