"""How the stages read a corpus: document by document, encoded in batches, and described in manifests."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from spectool.corpora import Corpus, Document
from spectool.tokenization.tokenizer import Tokenizer

Reader = Callable[[Corpus], Iterable[Document]]
"""Iterates over a corpus; the command line gives one that draws a progress bar."""

Progress = Callable[[str], None]
"""Called at the start of each step with a short description."""

_BATCH = 1000  # texts encoded at once


def encoded(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[tuple[str, list[int]]]:
    """Yield each text with its token ids; encodes a batch at a time."""
    rest = iter(texts)
    while batch := list(islice(rest, _BATCH)):
        yield from zip(batch, tokenizer.encode_batch(batch), strict=True)


def describe_corpus(corpus: Corpus) -> dict[str, Any]:
    """What a manifest says about a corpus that has been read: names, sizes, hashes, repairs."""
    return {
        "corpus": corpus.spec,
        **({} if corpus.encoding is None else {"encoding": corpus.encoding}),
        "files": [file._asdict() for file in corpus.describe_inputs()],
        "documents": corpus.counts.documents,
        "characters": corpus.counts.characters,
        "repaired": dict(sorted(corpus.counts.repaired.items())),
    }


def quiet(step: str) -> None:
    """A `Progress` that shows nothing, for a stage that is a step of another one."""
