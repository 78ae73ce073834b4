"""Real text spelled token by token in the other vocabulary, and what is counted on the way.

Each document is encoded by one tokenizer. The bytes of its tokens are joined in the other's ids.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectool.tokenization.backend import encode_many
from spectool.tokenization.incremental.by_ids import IncrementalEncoder
from spectool.tokenization.incremental.by_text import whole_characters
from spectool.tokenization.incremental.translated_text import TranslatedText
from spectool.tokenization.tokenizer import Tokenizer

PRIOR = 5  # occurrences that the share of all tokens counts for in the risk of one


class Written(NamedTuple):
    """A text as a tokenizer writes it."""

    ids: list[int]
    ends: list[int] | None  # the byte of the text at which each id ends; None where they do not spell it


def written(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[Written]:
    """Encode whole texts; special tokens are not recognized in text."""
    for text, ids in encode_many(tokenizer.plain_backend, texts, tokenizer.name):
        token_bytes = [tokenizer.token_bytes[token] for token in ids]
        joined = b"".join(token_bytes)
        shift = int(tokenizer.leading_space and joined.startswith(b" "))
        ends = [end - shift for end in accumulate(map(len, token_bytes))]
        yield Written(ids, ends if joined[shift:] == text.encode() else None)


def with_leading_space(target: Tokenizer, texts: Iterable[str]) -> list[str]:
    """Texts as a target writes them that begins every text with a space, which its decoder does not remove.

    Where that does not keep a text either, the text stays as it is.
    """
    if not target.writes_space or target.leading_space:
        return list(texts)

    def kept(text: str) -> bool:
        return target.bytes_of(target.encode(text)) == text.encode()

    return [f" {text}" if not kept(text) and kept(f" {text}") else text for text in texts]


def pieces(data: bytes, ends: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes of a text that has a token up to each of the ``ends``, as they become whole characters.

    Yields:
        Where a token ends and no character is unfinished, and the bytes since the place before.
    """
    done = 0
    for end in ends:
        if whole_characters(data[done:end]) == end - done:
            yield end, data[done:end]
            done = end


def replay_text(
    other: Tokenizer, encoder: IncrementalEncoder, documents: Iterable[tuple[bytes, Written, Written]]
) -> tuple[Counter[str], NDArray[np.int64], NDArray[np.int64]]:
    """Spell documents, each given as bytes and as the source and ``other`` write it, in ids of ``other``.

    Returns:
        The numbers of ``texts`` replayed and of ``lossy_texts`` left out, because one of the two tokenizers does not
        keep their bytes; of ``tokens`` of the source, ``other_tokens`` that ``other`` writes and ``different_tokens``
        among these, which did not come out. How often each id of ``other`` was the last one where a source token ended
        and another followed, and how often the following one's bytes replaced it (tail absorption), ``[ids]``.
    """
    counts = Counter(texts=0, lossy_texts=0, tokens=0, other_tokens=0, different_tokens=0)
    token_bytes, last, replaced = other.token_bytes, list[int](), list[int]()
    for data, (tokens, ends), (true_ids, true_ends) in documents:
        if ends is None or true_ends is None:
            counts["lossy_texts"] += 1
            continue
        translated = TranslatedText(encoder, other.leading_space)
        ids = translated.ids
        size, waiting = 0, list[int]()  # the number of ids after the step before, and the last one of them
        for _, piece in pieces(data, ends):
            before = translated.append(piece) or waiting
            last += waiting
            if waiting and not _still_ends(before, ids[size - len(before) :], token_bytes):
                replaced += waiting
            size, waiting = len(ids), ids[-1:]
        true, found = (set(zip(_ends(each, token_bytes), each, strict=True)) for each in (true_ids, ids))
        counts.update(texts=1, tokens=len(tokens), other_tokens=len(true_ids), different_tokens=len(true - found))
    return counts, np.bincount(last, minlength=other.size), np.bincount(replaced, minlength=other.size)


def _still_ends(before: Sequence[int], after: Sequence[int], token_bytes: Sequence[bytes]) -> bool:
    """Whether the last of some ids is where it was in those that replace them, which spell more."""
    *_, end = _ends(before, token_bytes)
    return (end, before[-1]) in zip(_ends(after, token_bytes), after, strict=True)


def _ends(ids: Sequence[int], token_bytes: Sequence[bytes]) -> Iterator[int]:
    return accumulate(len(token_bytes[token]) for token in ids)


def absorption_risks(last: NDArray[np.int64], replaced: NDArray[np.int64]) -> NDArray[np.float16]:
    """How often following text replaces each id, estimated from how often it was last and how often it was replaced.

    A few occurrences say little, so each id counts as last `PRIOR` more times, with the share of all ids. Where that is
    5%, an id that was replaced three times of three has (3 + 5 · 0.05) / (3 + 5) = 41%, and one that was not has 3%.

    Returns:
        Float16 ``[ids]``; NaN for ids that were never last.
    """
    share_of_all = replaced.sum() / max(1, last.sum())
    risks = (replaced + PRIOR * share_of_all) / (last + PRIOR)
    return np.where(last > 0, risks, np.nan).astype(np.float16)
