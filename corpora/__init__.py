"""Text comes in: sources, cleaning, bundled samples.

In: files, folders, or a sample. Out: clean documents, which are strings.
What was cleaned or left out is counted. Damaged text raises `CorpusError`, which names the file and the line or row.
"""

from spectool.corpora.sources import Corpus, open_corpus, sample_names, sample_path

__all__ = ["Corpus", "open_corpus", "sample_names", "sample_path"]
