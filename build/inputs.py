"""What every stage that reads text shares: how it is read, and what a manifest says of it."""

from collections.abc import Callable, Iterable
from typing import Any

from spectool.corpora import Corpus, Document

Reader = Callable[[Corpus], Iterable[Document]]
"""Iterates over a corpus; the command line gives one that draws a progress bar."""

Progress = Callable[[str], None]
"""Is told, in a phrase, when a step begins."""


def describe_corpus(corpus: Corpus) -> dict[str, Any]:
    """Return the manifest's account of a corpus that has been read: names, sizes, hashes, repairs."""
    return {
        "corpus": corpus.spec,
        "files": [file._asdict() for file in corpus.describe_inputs()],
        "documents": corpus.counts.documents,
        "characters": corpus.counts.characters,
        "repaired": dict(sorted(corpus.counts.repaired.items())),
    }


def quiet(step: str) -> None:
    """Say nothing of a step that is a part of another stage."""
