"""The text of a training in tokens: one stream to train on, and documents held out of it.

Several corpora share the stream by their weights, with their documents in random order. A corpus without held-out text
of its own gives some of its documents (`in_valid`), the same ones with every seed. Text that is held out of one
corpus is not trained on in any.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectool import CorpusError, TokenizerError
from spectool.build.corpus_reading import describe_corpus, with_progress
from spectool.commands.shared.console import say
from spectool.corpora import Corpus
from spectool.lab.training.options import TrainOptions
from spectool.tokenization.tokenizer import Tokenizer

_SHARE = 0.01  # of a large corpus that is held out
_FEW, _HALF = 10, 0.5  # documents of a small one, and the largest share of it


class Delimiters(NamedTuple):
    """Tokens around every document."""

    begin: int  # id before it
    end: int | None  # id after it; None where the ``begin`` of the next document marks the end

    @property
    def last(self) -> int:
        """Id that ends a text."""
        return self.begin if self.end is None else self.end


class TrainingCorpus(NamedTuple):
    """Text of one kind, such as a language."""

    corpus: Corpus  # text to train on
    valid: Corpus | None = None  # text to measure on; None for a part of ``corpus``
    weight: float = 1.0  # its share of the tokens, relative to the other corpora

    @property
    def identity(self) -> dict[str, Any]:
        """What the corpus was read from, as JSON values."""
        texts = [text for text in (self.corpus, self.valid) if text]
        return {
            "corpus": self.corpus.spec,
            "valid": None if self.valid is None else self.valid.spec,
            "weight": self.weight,
            "files": [list(file.values()) for text in texts for file in text.describe_inputs()],
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

    stream: NDArray[np.int32]  # ids of the training text, int32 ``[tokens]``
    held_out: dict[str, HeldOut]  # text to measure on, by corpus
    inputs: dict[str, Any]  # what was read, for the record


def delimiters_of(tokenizer: Tokenizer) -> Delimiters:
    """The tokens around documents: BOS and EOS, or the only one of them that exists.

    Raises:
        TokenizerError: There is no such token.
    """
    ends = [token for token in (tokenizer.roles.bos, *tokenizer.roles.eos[:1]) if token is not None]
    if not ends:
        raise TokenizerError(f"{tokenizer.name}: has no BOS or EOS token. Name one in tokenizer_config.json")
    return Delimiters(ends[0], ends[-1] if ends[-1] != ends[0] else None)


def in_valid(text: str, share: float = _SHARE, seed: int = 0) -> bool:
    """Whether a document belongs to the validation part of a corpus, an expected ``share`` of it.

    That depends on its text and the seed alone, so it is the same on every machine, and stays so when documents are
    added. With one seed, the validation part of a larger share contains that of a smaller one.
    """
    keyed = f"{seed}\0{text}".encode("utf-8", "surrogatepass")
    draw = int.from_bytes(hashlib.blake2b(keyed, digest_size=8).digest(), "big")
    return draw < share * 2**64


def split_corpus(corpus: Corpus, wanted: int, most: float) -> tuple[list[str], list[str]]:
    """All texts of a corpus, and those of them to measure on.

    A hundredth is held out; of a small corpus about ``wanted`` documents, but at most a share of ``most``.
    """
    texts = list(with_progress(corpus))
    share = max(_SHARE, min(most, wanted / max(1, len(texts))))
    return texts, [text for text in texts if in_valid(text, share)]


def read_training_text(
    sources: Mapping[str, TrainingCorpus], tokenizer: Tokenizer, delimiters: Delimiters, options: TrainOptions
) -> TrainingText:
    """The text of a training, which depends only on the corpora and the options. Holds all corpora in memory.

    A corpus without text to measure on gives whole documents until they have ``options.valid_tokens``. Its share of
    ``options.text_tokens`` comes from documents in an order that the seed decides.

    Raises:
        CorpusError: There is no text to train or to measure on.
    """
    say("reading text")
    read: dict[str, tuple[list[str], list[str]]] = {}
    for name, source in sources.items():
        documents, kept_out = split_corpus(source.corpus, _FEW, _HALF)
        if source.valid is not None:
            kept_out = list(with_progress(source.valid))
        read[name] = documents, kept_out
    out = {text for _, kept_out in read.values() for text in kept_out}
    weights = sum(source.weight for source in sources.values())
    rng = np.random.default_rng(options.seed)
    parts: list[NDArray[np.int32]] = []
    facts: dict[str, Any] = {}
    held_out: dict[str, HeldOut] = {}
    say("encoding text")
    end = [] if delimiters.end is None else [delimiters.end]
    for name, source in sources.items():
        documents, kept_out = read.pop(name)
        training = [text for text in documents if text not in out]
        measured: list[NDArray[np.int32]] = []
        tokens = size = 0
        for text, ids in filter(itemgetter(1), tokenizer.encode_each(kept_out)):
            if tokens >= options.valid_tokens:
                break
            measured.append(np.array([delimiters.begin, *ids], dtype=np.int32))
            tokens += len(ids)
            size += len(text.encode())
        if not measured or not training:
            raise CorpusError(
                f"{source.corpus.spec}: {len(documents)} documents, expected some to train on and others to measure "
                "on. Give more text, or other text to measure on with --valid"
            )
        left = share = round(options.text_tokens * source.weight / weights)
        shuffled = (training[place] for place in rng.permutation(len(training)))
        for _, ids in filter(itemgetter(1), tokenizer.encode_each(shuffled)):
            if left <= 0:
                break
            parts.append(np.array([delimiters.begin, *ids, *end], dtype=np.int32)[:left])
            left -= len(parts[-1])
        held_out[name] = HeldOut(tuple(measured), size)
        facts[name] = {
            "training": describe_corpus(source.corpus),
            **({} if source.valid is None else {"held_out": describe_corpus(source.valid)}),
            "left_out": len(documents) - len(training),
            "weight": source.weight,
            "tokens": share - left,
        }
    return TrainingText(np.concatenate([parts[place] for place in rng.permutation(len(parts))]), held_out, facts)


class Feed:
    """Rows of tokens for every step of a training, as a function of the seed and the step's number alone.

    Rows of the first two thirds of the steps are half as long as the others, because attention is expensive and a model
    learns the nearest words first. They come from the first two thirds of the text, the long ones from the rest, each
    in random order. So no text is seen twice before all of its part has been seen.
    """

    def __init__(self, stream: NDArray[np.int32], options: TrainOptions) -> None:
        """Divide the text, int32 ``[tokens]``.

        Raises:
            CorpusError: It is too short for a step.
        """
        step_tokens, length, cut = options.step_tokens, options.length, len(stream) * 2 // 3
        self._short_steps, self._step_tokens, self._seed = options.steps * 2 // 3, step_tokens, options.seed
        self._parts = ((stream[:cut], length // 2), (stream[cut:], length))
        if any(_rows_in(part, length) < step_tokens // length for part, length in self._parts):
            raise CorpusError(
                f"the training text has {len(stream):,} tokens: expected {3 * (step_tokens + 2 * length):,} and more "
                f"for steps of {step_tokens:,}. Give more text, or fewer --step-tokens"
            )

    def rows(self, step: int) -> NDArray[np.int32]:
        """The rows of a step (from 0), ``[rows, length + 1]``: each token but the last predicts the next."""
        number = int(step >= self._short_steps)
        stream, length = self._parts[number]
        rows, there = self._step_tokens // length, _rows_in(stream, length)
        round_, place = divmod(step - number * self._short_steps, there // rows)
        starts = _starts(there, length, self._seed, number, round_)[place * rows : (place + 1) * rows]
        return np.stack([stream[start : start + length + 1] for start in starts])


def _rows_in(stream: NDArray[np.int32], length: int) -> int:
    """Number of rows in a part of the text, wherever the first one begins."""
    return len(stream) // length - 1


@lru_cache(maxsize=1)
def _starts(rows: int, length: int, *seed: int) -> NDArray[np.int64]:
    """Where the rows of a part begin, in the order of one round through it."""
    rng = np.random.default_rng(seed)
    first = rng.integers(length)
    return first + length * rng.permutation(rows)
