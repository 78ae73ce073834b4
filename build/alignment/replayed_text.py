"""Real text spelled token by token in the other vocabulary, and what is counted on the way.

Each document is encoded by one tokenizer. Its tokens are looked up in the other's ids and joined.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.alignment import Spellings
from spectool.tokenization.backend import encoded
from spectool.tokenization.incremental.by_text import REACH, TailReencoder
from spectool.tokenization.incremental.encoder import IncrementalEncoder
from spectool.tokenization.token_bytes import text_of
from spectool.tokenization.tokenizer import Tokenizer

WINDOW = 4  # source tokens that count as one cycle for the string-free rate
PRIOR = 5  # occurrences that the share of all tokens counts for in the risk of one
_BATCH = 4096  # texts encoded at once

Written = tuple[list[int], list[int] | None]
"""Ids of a document, and the byte at which each ends; None where they do not spell it."""


def with_leading_space(target: Tokenizer, texts: Iterable[str]) -> list[str]:
    """Texts as a target writes them that begins every text with a space, which its decoder does not remove.

    Where that does not keep a text either, the text stays as it is.
    """
    if not target.writes_space or target.leading_space:
        return list(texts)

    def kept(text: str) -> bool:
        return target.bytes_of(target.encode(text)) == text.encode()

    return [f" {text}" if not kept(text) and kept(f" {text}") else text for text in texts]


@dataclass(frozen=True, slots=True)
class Reference:
    """Encodes whole texts; special tokens are not recognized in text."""

    tokenizer: Tokenizer

    def read(self, texts: Sequence[str]) -> Iterator[Written]:
        """Encode texts."""
        for begin in range(0, len(texts), _BATCH):
            batch = texts[begin : begin + _BATCH]
            encodings = encoded(self.tokenizer.plain_backend.encode_batch_fast, batch, self.tokenizer.name)
            for encoding, text in zip(encodings, batch, strict=True):
                yield encoding.ids, self._ends(encoding.ids, text.encode())

    def _ends(self, ids: Sequence[int], data: bytes) -> list[int] | None:
        """The byte of a text at which each of its ids ends, None where they do not spell it."""
        token_bytes = [self.tokenizer.token_bytes[token] for token in ids]
        joined = b"".join(token_bytes)
        shift = int(self.tokenizer.leading_space and joined.startswith(b" "))
        if joined[shift:] != data:
            return None
        return [end - shift for end in accumulate(map(len, token_bytes))]


@dataclass(frozen=True, slots=True)
class Respelled:
    """A text after one more token of the source."""

    end: int  # bytes of the text up to the token's end
    ids: list[int] | None  # ids of the text up to there, which the next step changes; None inside a character
    replaced: int | None = None  # the last id of the step before, where it was replaced


def translate_text(
    source: Tokenizer,
    other: Tokenizer,
    encoder: IncrementalEncoder,
    spellings: Spellings,
    text: tuple[bytes, Sequence[int], Sequence[int]],
) -> Iterator[Respelled]:
    """Spell a text of ``source`` token by token in ids of ``other``, as generation does with committed tokens.

    Args:
        source: Whose tokens are translated.
        other: Into whose vocabulary.
        encoder: Joins ids of ``other``.
        spellings: Of the tokens of ``source``.
        text: Bytes, ids of ``source``, and the byte at which each of these ends.
    """
    data, tokens, ends = text
    prefix = b" " * other.leading_space
    ids: list[int] = []
    done, begun = 0, False
    for token, end in zip(tokens, ends, strict=True):
        spelling = (spellings.inside if begun else spellings.text_start)[token]
        fresh = data[done:end]
        if not is_whole(fresh):  # wait for the rest of the character
            yield Respelled(end, None)
            continue
        if isinstance(encoder, TailReencoder):
            start, tail = encoder.join(ids, data[max(0, done - REACH) : done], fresh)
        elif spelling and (done == end or is_whole(source.token_bytes[token])):
            start, tail = encoder.join(ids, spelling)
        else:
            start, tail = encoder.join_bytes(ids, fresh if begun else prefix + fresh)
        replaced = ids[-1] if start < len(ids) and not _still_ends(ids[start:], tail, other.token_bytes) else None
        ids[start:] = tail
        done, begun = end, True
        yield Respelled(end, ids, replaced)


def _still_ends(before: Sequence[int], after: Sequence[int], token_bytes: Sequence[bytes]) -> bool:
    """Whether the last of some ids is where it was in those that replace them, which spell more."""
    if list(after[: len(before)]) == list(before):
        return True
    end = sum(len(token_bytes[token]) for token in before)
    ends = accumulate(len(token_bytes[token]) for token in after)
    return any(token == before[-1] for token, reached in zip(after, ends, strict=True) if reached == end)


@dataclass
class ReplayCounts:
    """Counts of one direction."""

    texts: int = 0  # documents replayed
    lossy_texts: int = 0  # documents left out, because one of the two tokenizers does not keep their bytes
    different_texts: int = 0  # documents whose ids differ from the other tokenizer's own encoding
    other_tokens: int = 0  # tokens of that encoding
    different_tokens: int = 0  # those that did not come out
    tokens: int = 0  # tokens of the source
    windows: int = 0  # runs of `WINDOW` tokens
    windows_with_strings: int = 0  # those in which text had to be encoded or decoded
    # How often each id of ``other`` was the last one where a source token ended and another followed, and how often
    # the following one's bytes replaced it (tail absorption); int64 ``[ids of other]``.
    last: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    replaced: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def as_dict(self) -> dict[str, int | float | None]:
        """The counts and their ratio as JSON values; None where there was nothing to count."""
        counted = ("texts", "lossy_texts", "different_texts", "other_tokens", "different_tokens", "tokens")
        return {
            **{name: getattr(self, name) for name in counted},
            "string_free": share(self.windows - self.windows_with_strings, self.windows),
        }


def replay_text(
    source: Tokenizer,
    other: Tokenizer,
    encoder: IncrementalEncoder,
    spellings: Spellings,
    documents: Iterable[tuple[bytes, Written, Written]],
) -> ReplayCounts:
    """What is counted when documents of ``source`` are spelled in ids of ``other``.

    Each document is given as bytes, and as ``source`` and as ``other`` write it.
    """
    counts = ReplayCounts()
    last, replaced = list[int](), list[int]()
    for data, (tokens, ends), (true_ids, true_ends) in documents:
        if ends is None or true_ends is None:
            counts.lossy_texts += 1
            continue
        counts.texts += 1
        calls = [encoder.string_calls]
        ids: list[int] = []
        waiting: int | None = None  # the last id of the step before
        for step in translate_text(source, other, encoder, spellings, (data, tokens, ends)):
            calls.append(encoder.string_calls)
            counts.tokens += 1
            if step.ids is None:
                continue
            if waiting is not None:
                last.append(waiting)
            if step.replaced is not None:
                replaced.append(step.replaced)
            ids = step.ids
            waiting = ids[-1] if ids else None
        true = set(zip(true_ends, true_ids, strict=True))
        ended = zip(accumulate(len(other.token_bytes[token]) for token in ids), ids, strict=True)
        shift = sum(len(other.token_bytes[token]) for token in true_ids) - true_ends[-1] if true_ids else 0
        counts.other_tokens += len(true_ids)
        counts.different_tokens += len(true.difference((end - shift, token) for end, token in ended))
        counts.different_texts += ids != true_ids
        windows = range(0, len(calls) - 1, WINDOW)
        counts.windows += len(windows)
        counts.windows_with_strings += sum(calls[min(i + WINDOW, len(calls) - 1)] > calls[i] for i in windows)
    counts.last, counts.replaced = (np.bincount(ids, minlength=other.size) for ids in (last, replaced))
    return counts


def absorption_risks(last: NDArray[np.int64], replaced: NDArray[np.int64]) -> NDArray[np.float16]:
    """How often following text replaces each id, estimated from how often it was last and how often it was replaced.

    A few occurrences say little, so each id counts as last `PRIOR` more times, with the share of all ids. Where that is
    5%, an id that was replaced three times of three has (3 + 5 · 0.05) / (3 + 5) = 41%. If it was replaced none of
    three times, it has 3%.

    Returns:
        Float16 ``[ids]``; NaN for ids that were never last.
    """
    share_of_all = replaced.sum() / max(1, last.sum())
    risks = (replaced + PRIOR * share_of_all) / (last + PRIOR)
    return np.where(last > 0, risks, np.nan).astype(np.float16)


def is_whole(data: bytes) -> bool:
    """Whether bytes are whole characters."""
    return not data or bool(text_of(data))


def share(part: int, whole: int) -> float | None:
    """A ratio to six places, None of nothing."""
    return round(part / whole, 6) if whole > 0 else None
