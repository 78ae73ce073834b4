"""The vocabulary intersection of two tokenizers, on bytes, and how much of real text it covers.

Token strings are never compared: ``Ġkot`` and ``▁kot`` are the same five bytes. Special
tokens have no bytes and are paired by name or role.

Source: TLI, "token-level intersection" drafting. Coverage by occurrence is what decides, because most of a vocabulary
never occurs in one language.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.alignment import NONE
from spectool.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of one side the other side shares."""

    shared: int  # ids with a counterpart, special tokens included
    size: int  # all ids that have bytes or a role
    occurrences: int  # tokens of the corpus, encoded by this side
    shared_occurrences: int  # those with a counterpart

    @property
    def by_vocabulary(self) -> float:
        """Shared ids / ids."""
        return self.shared / self.size if self.size else 0.0

    @property
    def by_occurrence(self) -> float:
        """Shared tokens / tokens of the corpus."""
        return self.shared_occurrences / self.occurrences if self.occurrences else 0.0


def intersect(source: Tokenizer, other: Tokenizer) -> NDArray[np.int32]:
    """For every id of ``source``, the id of ``other`` with the same bytes or the same role.

    Where several ids of ``other`` have the same bytes, the one that its `encode` writes wins:
    ordinary tokens before byte-fallback tokens, then the lowest id.

    Returns:
        int32, shape ``[source ids]``; -1 where there is none.
    """
    # Later ids take the place of earlier ones, so the preferred ones come last.
    order = sorted(range(other.size), key=lambda index: (index not in other.byte_tokens, -index))
    counterpart = {other.token_bytes[index]: index for index in order} | {b"": NONE}
    ids = [counterpart.get(raw, NONE) for raw in source.token_bytes]
    for mine, theirs in _role_pairs(source, other):
        ids[mine] = theirs
    return np.array(ids, dtype=np.int32)


def duplicate_token_bytes(tokenizer: Tokenizer) -> int:
    """Number of ids whose bytes an earlier id has as well."""
    token_bytes = [raw for raw in tokenizer.token_bytes if raw]
    return len(token_bytes) - len(set(token_bytes))


def occurrences(documents: Iterable[Sequence[int]], size: int) -> NDArray[np.int64]:
    """How often each id occurs; int64, shape ``[size]``."""
    return np.bincount(np.fromiter(chain.from_iterable(documents), np.int64), minlength=size)


def coverage(tokenizer: Tokenizer, counterpart: NDArray[np.int32], counts: NDArray[np.int64]) -> Coverage:
    """How much of a vocabulary and of a counted text has a counterpart.

    Args:
        tokenizer: Whose ids they are.
        counterpart: The other's id of each, int32 ``[size]``; `NONE` where there is none.
        counts: How often each occurs in the text, int64 ``[size]``.
    """
    shared = counterpart != NONE
    usable = sum(1 for raw in tokenizer.token_bytes if raw) + len(tokenizer.specials)
    return Coverage(int(shared.sum()), usable, int(counts.sum()), int(counts[shared].sum()))


def _role_pairs(source: Tokenizer, other: Tokenizer) -> list[tuple[int, int]]:
    """Pairs of special ids: those of the same name (``<|im_start|>``), BOS and padding by role, any end with the first.

    Roles come last, so that they win over names. A token of ordinary text keeps to its bytes, although it has a role.
    """
    mine, theirs = source.roles, other.roles
    names = {index: name for name, index in source.vocabulary.items() if index in source.specials - {source.unknown}}
    pairs: list[tuple[int | None, int | None]] = [
        (index, other.vocabulary[name])
        for index, name in sorted(names.items())
        if other.vocabulary.get(name) in other.specials - {other.unknown}
    ]
    pairs += [(mine.pad, theirs.pad), (mine.bos, theirs.bos)]
    pairs += [(end, theirs.eos[0]) for end in mine.eos if theirs.eos]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    return [(a, b) for a, b in known if not (source.is_ordinary(a) or other.is_ordinary(b))]
