"""What every stage that reads text shares: how it is read and encoded, and what a manifest says of it."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from spectool.corpora import Corpus, Document
from spectool.tokenization.tokenizer import Tokenizer

Reader = Callable[[Corpus], Iterable[Document]]
"""Iterates over a corpus; the command line gives one that draws a progress bar."""

Progress = Callable[[str], None]
"""Is told, in a phrase, when a step begins."""

_BATCH = 1000  # texts encoded at once


def encoded(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[tuple[str, list[int]]]:
    """Yield each text with its canonical ids; encodes a batch at a time."""
    rest = iter(texts)
    while batch := list(islice(rest, _BATCH)):
        yield from zip(batch, tokenizer.encode_batch(batch), strict=True)


def describe_corpus(corpus: Corpus) -> dict[str, Any]:
    """Return the manifest's account of a corpus that has been read: names, sizes, hashes, repairs."""
    return {
        "corpus": corpus.spec,
        **({} if corpus.encoding is None else {"encoding": corpus.encoding}),
        "files": [file._asdict() for file in corpus.describe_inputs()],
        "documents": corpus.counts.documents,
        "characters": corpus.counts.characters,
        "repaired": dict(sorted(corpus.counts.repaired.items())),
    }


def quiet(step: str) -> None:
    """Say nothing of a step that is a part of another stage."""
