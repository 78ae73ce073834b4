"""The text of a run in tokens: one stream to train on, and documents held out of it.

It is made once and kept in the work directory, so that a run that goes on reads no corpus again:

    stream.npy     the training text, int32 [tokens]
    text.json      the held-out documents, and what was read

Without held-out text of its own, a corpus gives some of its documents (`corpora.split`), the same
ones whatever the run's seed. No text that is held out is trained on, wherever it stands.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool import CorpusError, TokenizerError
from spectool.artifacts import Tokenizer
from spectool.build import count_work
from spectool.build.inputs import Progress, Reader, describe_corpus
from spectool.corpora import Corpus, in_valid

_BATCH = 1000  # documents encoded at once
_FEW = 10  # documents to hold out of a small corpus
_SHARE = 0.01  # of a large one


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Tokens around every document.

    Attributes:
        begin: Id before it.
        end: Id after it; None where the next document's ``begin`` says it.
    """

    begin: int
    end: int | None


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Text to measure on.

    Attributes:
        documents: Ids of each document, ``begin`` first.
        bytes: UTF-8 bytes of all of them.
    """

    documents: tuple[NDArray[np.int32], ...]
    bytes: int

    @property
    def tokens(self) -> int:
        """Tokens that are predicted: all but the first of each document."""
        return sum(len(document) - 1 for document in self.documents)


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a run.

    Attributes:
        stream: Ids of the training text in the order of reading it, int32 ``[tokens]``.
        held_out: Text to measure on.
        inputs: What was read, for the record.
    """

    stream: NDArray[np.int32]
    held_out: HeldOut
    inputs: dict[str, Any]


def boundaries_of(tokenizer: Tokenizer, boundary: str | None = None) -> Boundaries:
    """Return the tokens to put around documents: BOS and EOS, or the only one that there is on both sides.

    Args:
        tokenizer: The model's.
        boundary: The string of a token to use alone instead.

    Raises:
        TokenizerError: There is no such token.
    """
    if boundary is not None:
        if boundary not in tokenizer.vocabulary:
            raise TokenizerError(f"--boundary: expected a token of {tokenizer.name}, got {boundary!r}")
        return Boundaries(tokenizer.vocabulary[boundary], None)
    bos, eos = tokenizer.roles.bos, next(iter(tokenizer.roles.eos), None)
    if bos is None and eos is None:
        raise TokenizerError(f"{tokenizer.name}: has no token for the ends of a text. Name one with --boundary TOKEN")
    begin = eos if bos is None else bos
    assert begin is not None
    return Boundaries(begin, None if eos == begin else eos)


def prepare(
    work: Path,
    corpus: Corpus,
    valid: Corpus | None,
    tokenizer: Tokenizer,
    boundaries: Boundaries,
    limit: int,
    valid_tokens: int,
    seed: int,
    progress: Progress,
    reader: Reader = iter,
) -> None:
    """Read and encode the text of a run into ``work``, unless it is there. Holds all of the corpus in memory.

    Args:
        work: The work directory.
        corpus: Text to train on.
        valid: Text to measure on; by default a part of ``corpus``.
        tokenizer: Encodes it.
        boundaries: Tokens around documents.
        limit: Tokens to take for training, from documents in random order.
        valid_tokens: Tokens to measure on; whole documents, so a few more.
        seed: Chooses the documents to train on.
        progress: Called with a phrase when a step begins.
        reader: Iterates over a corpus.

    Raises:
        CorpusError: There is no text to train or to measure on.
    """
    if (work / "text.json").exists():
        return
    progress("reading text")
    documents = [(document.id, document.text) for document in reader(corpus)]
    inputs: dict[str, Any] = {"training": describe_corpus(corpus)}
    if valid is None:
        share = max(_SHARE, min(0.5, _FEW / len(documents)))
        kept_out = [text for name, text in documents if in_valid(name, share)]
    else:
        kept_out = [document.text for document in reader(valid)]
        inputs["held_out"] = describe_corpus(valid)
    out = set(kept_out)
    training = [text for _, text in documents if text not in out]
    inputs["left_out"] = len(documents) - len(training)
    held_out, size = _held_out(tokenizer, kept_out, boundaries, valid_tokens)
    if not held_out or not training:
        raise CorpusError(
            f"{corpus.spec}: {len(documents)} documents, expected some to train on and others to measure on. "
            "Give more text, or other text to measure on with --valid"
        )
    del documents
    progress("encoding text")
    order = np.random.default_rng(seed).permutation(len(training))
    stream = _stream(tokenizer, (training[place] for place in order), boundaries, limit)
    count_work.save(work, "stream", stream)
    count_work.write_json(work / "text.json", {"inputs": inputs, "bytes": size, "held_out": held_out})


def load(work: Path) -> Text:
    """Read what `prepare` wrote; the stream stays on disk until it is looked at."""
    found = json.loads((work / "text.json").read_text(encoding="utf-8"))
    documents = tuple(np.array(ids, dtype=np.int32) for ids in found["held_out"])
    return Text(count_work.load(work, "stream", mapped=True), HeldOut(documents, found["bytes"]), found["inputs"])


def _stream(tokenizer: Tokenizer, texts: Iterator[str], boundaries: Boundaries, limit: int) -> NDArray[np.int32]:
    """Return the ids of ``texts`` with tokens around each, until there are ``limit``."""
    end = [] if boundaries.end is None else [boundaries.end]
    parts: list[NDArray[np.int32]] = []
    size = 0
    while size < limit and (batch := list(islice(texts, _BATCH))):
        for ids in filter(None, tokenizer.encode_batch(batch)):
            parts.append(np.array([boundaries.begin, *ids, *end], dtype=np.int32))
            size += len(parts[-1])
    return np.concatenate(parts)[:limit] if parts else np.empty(0, dtype=np.int32)


def _held_out(
    tokenizer: Tokenizer, texts: Sequence[str], boundaries: Boundaries, limit: int
) -> tuple[list[list[int]], int]:
    """Return the first documents of ``limit`` tokens in all, and their UTF-8 bytes."""
    documents, tokens, size = [], 0, 0
    for text, ids in _encoded(tokenizer, texts):
        if tokens >= limit:
            break
        if ids:
            documents.append([boundaries.begin, *ids])
            tokens += len(ids)
            size += len(text.encode())
    return documents, size


def _encoded(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[tuple[str, list[int]]]:
    """Yield texts with their ids."""
    rest = iter(texts)
    while batch := list(islice(rest, _BATCH)):
        yield from zip(batch, tokenizer.encode_batch(batch), strict=True)
