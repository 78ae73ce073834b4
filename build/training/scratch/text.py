"""The text of a run in tokens: one stream to train on, and documents held out of it.

It is made once and kept in the work directory, so that a resumed run reads no corpus again:

    stream.npy     the training text, int32 [tokens]
    text.json      the held-out documents of each corpus, and what was read

Several corpora share the stream by their weights, their documents in random order. Without held-out
text of its own, a corpus gives some of its documents (`corpora.split`), the same ones whatever the
run's seed. No text that is held out is trained on, wherever it stands.
"""

from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectool import CorpusError, TokenizerError
from spectool.artifacts import Tokenizer
from spectool.artifacts import work as work_directory
from spectool.artifacts.work import read_json, save, write_json
from spectool.build.inputs import Progress, Reader, describe_corpus, encoded
from spectool.corpora import Corpus, in_valid

_FEW = 10  # documents to hold out of a small corpus
_SHARE = 0.01  # of a large one


class Delimiters(NamedTuple):
    """Tokens around every document."""

    begin: int  # id before it
    end: int | None  # id after it; None where the next document's ``begin`` says it

    @property
    def last(self) -> int:
        """Id that says that a text is over."""
        return self.begin if self.end is None else self.end


class TrainingCorpus(NamedTuple):
    """Text of one kind, such as a language."""

    corpus: Corpus  # text to train on
    valid: Corpus | None = None  # text to measure on; None for a part of ``corpus``
    weight: float = 1.0  # its part of the tokens, beside those of the others

    @property
    def identity(self) -> dict[str, Any]:
        """What it is, as JSON has it."""
        texts = [text for text in (self.corpus, self.valid) if text]
        return {
            "corpus": self.corpus.spec,
            "valid": None if self.valid is None else self.valid.spec,
            "weight": self.weight,
            "files": [list(file) for text in texts for file in text.describe_inputs()],
        }


class HeldOut(NamedTuple):
    """Text to measure on."""

    documents: tuple[NDArray[np.int32], ...]  # ids of each document, ``begin`` first
    bytes: int  # UTF-8 bytes of all of them

    @property
    def tokens(self) -> int:
        """Tokens that are predicted: all but the first of each document."""
        return sum(len(document) - 1 for document in self.documents)


class TrainingText(NamedTuple):
    """The text of a run."""

    stream: NDArray[np.int32]  # ids of the training text in the order of reading it, int32 ``[tokens]``
    held_out: dict[str, HeldOut]  # text to measure on, by corpus
    inputs: dict[str, Any]  # what was read, for the record


def delimiters_of(tokenizer: Tokenizer, boundary: str | None = None) -> Delimiters:
    """Return the tokens to put around documents: BOS and EOS, or the only one that there is on both sides.

    ``boundary`` is the string of a token to use alone instead.

    Raises:
        TokenizerError: There is no such token.
    """
    if boundary is not None:
        if boundary not in tokenizer.vocabulary:
            raise TokenizerError(f"--boundary: expected a token of {tokenizer.name}, got {boundary!r}")
        return Delimiters(tokenizer.vocabulary[boundary], None)
    bos, eos = tokenizer.roles.bos, next(iter(tokenizer.roles.eos), None)
    if bos is None and eos is None:
        raise TokenizerError(f"{tokenizer.name}: has no token for the ends of a text. Name one with --boundary TOKEN")
    begin = eos if bos is None else bos
    assert begin is not None
    return Delimiters(begin, None if eos == begin else eos)


def prepare(
    work: Path,
    sources: Mapping[str, TrainingCorpus],
    tokenizer: Tokenizer,
    delimiters: Delimiters,
    limit: int,
    valid_tokens: int,
    seed: int,
    progress: Progress,
    reader: Reader = iter,
) -> None:
    """Read and encode the text of a run into ``work``, unless it is there. Holds all corpora in memory.

    Args:
        work: The work directory.
        sources: Text by name.
        tokenizer: Encodes it.
        delimiters: Tokens around documents.
        limit: Tokens to take for training, from documents in random order; less where a corpus has less than
            its part.
        valid_tokens: Tokens of each corpus to measure on; whole documents, so a few more.
        seed: Chooses the documents to train on, and their order.
        progress: Called with a phrase when a step begins.
        reader: Iterates over a corpus.

    Raises:
        CorpusError: There is no text to train or to measure on.
    """
    if (work / "text.json").exists():
        return
    progress("reading text")
    read = {name: _read(source, reader) for name, source in sources.items()}
    out = {text for _, kept_out in read.values() for text in kept_out}
    weights = sum(source.weight for source in sources.values())
    rng = np.random.default_rng(seed)
    parts: list[NDArray[np.int32]] = []
    facts: dict[str, Any] = {}
    held_out: dict[str, Any] = {}
    progress("encoding text")
    end = [] if delimiters.end is None else [delimiters.end]
    for name, source in sources.items():
        documents, kept_out = read.pop(name)
        training = [text for text in documents if text not in out]
        measured: list[list[int]] = []
        tokens = size = 0
        for text, ids in filter(itemgetter(1), encoded(tokenizer, kept_out)):
            if tokens >= valid_tokens:
                break
            measured.append([delimiters.begin, *ids])
            tokens += len(ids)
            size += len(text.encode())
        if not measured or not training:
            raise CorpusError(
                f"{source.corpus.spec}: {len(documents)} documents, expected some to train on and others to measure "
                "on. Give more text, or other text to measure on with --valid"
            )
        left = share = round(limit * source.weight / weights)
        shuffled = (training[place] for place in rng.permutation(len(training)))
        for _, ids in filter(itemgetter(1), encoded(tokenizer, shuffled)):
            if left <= 0:
                break
            parts.append(np.array([delimiters.begin, *ids, *end], dtype=np.int32)[:left])
            left -= len(parts[-1])
        held_out[name] = {"bytes": size, "documents": measured}
        facts[name] = {
            "training": describe_corpus(source.corpus),
            **({} if source.valid is None else {"held_out": describe_corpus(source.valid)}),
            "left_out": len(documents) - len(training),
            "weight": source.weight,
            "tokens": share - left,
        }
    stream = np.concatenate([parts[place] for place in rng.permutation(len(parts))])
    save(work, "stream", stream)
    write_json(work / "text.json", {"inputs": facts, "held_out": held_out})


def load(work: Path) -> TrainingText:
    """Read what `prepare` wrote; the stream stays on disk until it is looked at."""
    found = read_json(work / "text.json")
    held_out = {
        name: HeldOut(tuple(np.array(ids, dtype=np.int32) for ids in kept["documents"]), kept["bytes"])
        for name, kept in found["held_out"].items()
    }
    return TrainingText(work_directory.load(work, "stream", mapped=True), held_out, found["inputs"])


def _read(source: TrainingCorpus, reader: Reader) -> tuple[list[str], list[str]]:
    """Return all documents of a corpus, and those to measure on."""
    documents = [(document.id, document.text) for document in reader(source.corpus)]
    texts = [text for _, text in documents]
    if source.valid is not None:
        return texts, [document.text for document in reader(source.valid)]
    share = max(_SHARE, min(0.5, _FEW / max(1, len(documents))))
    return texts, [text for name, text in documents if in_valid(name, share)]


def tokens_needed(steps: int, step_tokens: int, length: int) -> int:
    """Return how many tokens of text a run sees none of twice."""
    return steps * step_tokens + 3 * (step_tokens + 2 * length)


class Feed:
    """Rows of tokens for every step of a run, as a function of the seed and the step's number alone.

    Rows of the first two thirds of the steps are half as long as the others. Attention is dear, and a model learns the
    nearest words first. They are drawn from the first two thirds of the text, the long ones from the rest. Both are in
    random order and from a random place on. So no text is seen twice before all of its part has been.
    """

    def __init__(self, stream: NDArray[np.int32], steps: int, step_tokens: int, length: int, seed: int) -> None:
        """Lay out the text.

        Args:
            stream: Tokens of the text, int32 ``[tokens]``.
            steps: Steps of the whole run.
            step_tokens: Tokens that a step predicts, a multiple of ``length``.
            length: Tokens that a long row predicts; even.
            seed: Another seed gives another order.

        Raises:
            CorpusError: The text is too short for a step.
        """
        self.short_steps = steps * 2 // 3
        cut = len(stream) * 2 // 3
        lengths = (length // 2, length)
        self._parts = tuple(
            _Part(part, row, step_tokens // row, [seed, number])
            for number, (part, row) in enumerate(zip((stream[:cut], stream[cut:]), lengths, strict=True))
        )
        if any(part.steps < 1 for part in self._parts):
            raise CorpusError(
                f"the training text has {len(stream):,} tokens: expected {3 * (step_tokens + 2 * length):,} and more "
                f"for steps of {step_tokens:,}. Give more text, or fewer --step-tokens"
            )

    def rows(self, step: int) -> NDArray[np.int32]:
        """Return the rows of a step (from 0), ``[rows, length + 1]``: each token but the last predicts the next."""
        short = step < self.short_steps
        return self._parts[0].rows(step) if short else self._parts[1].rows(step - self.short_steps)


class _Part:
    """Rows of one length, from one part of the text."""

    def __init__(self, stream: NDArray[np.int32], length: int, rows: int, seed: list[int]) -> None:
        self._stream, self._length, self._rows, self._seed = stream, length, rows, seed
        self._count = max(0, len(stream) - length) // length  # from any place on, there are as many
        self.steps = self._count // rows
        self._order: tuple[int, NDArray[np.int64]] = (-1, np.empty(0, dtype=np.int64))

    def rows(self, step: int) -> NDArray[np.int32]:
        round_, place = divmod(step, self.steps)
        if self._order[0] != round_:
            rng = np.random.default_rng([*self._seed, round_])
            first = rng.integers(self._length)
            self._order = (round_, first + self._length * rng.permutation(self._count))
        starts = self._order[1][place * self._rows : (place + 1) * self._rows]
        return np.stack([self._stream[start : start + self._length + 1] for start in starts])
