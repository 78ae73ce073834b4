"""BPE on ids: un-merge tokens, merge symbols, and tell whether two tokens would merge.

A token is the root of the tree of merges that make it. `Merges` holds the last merge of every token: its two parts and
the rank. It also holds the merge list, a few MB, and no pair matrix.

**Merge-site lemma** (docs/design.md). Inside one pre-token a sequence is canonical iff every adjacent pair is
compatible. Take some x on a's right spine and some y on b's left spine. Let x be consumed in a at rank i, and y in b at
rank j. The pair (a, b) merges iff some x and y have a merge of rank r < i, r <= j. The leftmost of equal ranks goes
first, and a root is never consumed. That takes for granted that a part is made by a lower rank than the whole. Where it
is not (runs of spaces in some vocabularies: the longest merge has the lowest rank), the pair is merged to see.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

SYMBOL = -1  # `left` of a token that no merge makes: a character or a byte
UNREACHABLE = -2  # `left` of a token that merging its own bytes does not give back
_NEVER = 2**31 - 1
_SHORT = 64  # symbols for which looking through all of them is faster than a heap
_GONE = -1  # a symbol that has become part of the one before it
_REMEMBERED = 1 << 17  # pairs, about 100 bytes each


@dataclass(frozen=True)
class MergeTable:
    """The merges of one BPE tokenizer as arrays."""

    left: NDArray[np.int32]  # first part of each token's last merge, `SYMBOL` or `UNREACHABLE`; int32 ``[ids]``
    right: NDArray[np.int32]  # second part, likewise
    rank: NDArray[np.int32]  # rank of that merge, -1 where there is none; int32 ``[ids]``
    pairs: NDArray[np.int64]  # ``first part * 2**32 + second part`` of every merge, ascending; int64 ``[merges]``
    ranks: NDArray[np.int32]  # rank of each; int32 ``[merges]``
    results: NDArray[np.int32]  # token that each makes; int32 ``[merges]``


class Merges:
    """A `MergeTable` that answers questions about single tokens and pairs."""

    def __init__(self, table: MergeTable, symbols: Mapping[bytes, int], byte_tokens: Mapping[int, int]) -> None:
        """Prepare a table.

        Args:
            table: The merges.
            symbols: Id of each symbol by its bytes: characters, or single bytes.
            byte_tokens: Byte of each byte-fallback id; empty for byte-level vocabularies.
        """
        # Single numbers are read faster from memoryviews than from arrays; nothing is copied.
        self._left, self._right, self._rank = table.left.data, table.right.data, table.rank.data
        self._ranks = np.append(table.ranks, np.int32(_NEVER)).data  # the last one is that of no merge
        self._results = table.results.data
        self._places = _Places(table)
        self._unordered = _unordered(table)
        self._symbols = symbols
        self._by_bytes = not byte_tokens and all(len(symbol) == 1 for symbol in symbols)
        self._byte_of = byte_tokens
        self._byte_ids = {byte: token for token, byte in byte_tokens.items()}

    def reachable(self, token: int) -> bool:
        """Whether merging the token's own bytes gives the token back."""
        return self._left[token] != UNREACHABLE

    def is_byte(self, token: int) -> bool:
        """Whether this is a byte-fallback token."""
        return token in self._byte_of

    def would_merge(self, first: int, second: int, before: int = _NEVER) -> bool:
        """Whether BPE merges across the boundary of two reachable tokens (the lemma), by merges of ranks ``before``."""
        if first in self._unordered or second in self._unordered:
            return self.merge(self.symbols((first, second))) != [first, second]
        left, right, rank = self._left, self._right, self._rank
        x, x_consumed = first, before
        while x >= 0:
            y, y_consumed = second, before
            while y >= 0:
                merged = self._ranks[self._places[x << 32 | y]]
                if merged < x_consumed and merged <= y_consumed:
                    return True
                y, y_consumed = left[y], rank[y]
            x, x_consumed = right[x], rank[x]
        return False

    def symbols(self, tokens: Iterable[int]) -> list[int]:
        """Un-merge tokens into symbols; bytes that now complete a character become that character."""
        found: list[int] = []
        stack = list(tokens)[::-1]
        while stack:
            token = stack.pop()
            if self._left[token] < 0:
                found.append(token)
            else:
                stack += (self._right[token], self._left[token])
        if self._byte_of and any(token in self._byte_of for token in found):
            return self._with_characters(found)
        return found

    def spell(self, data: bytes) -> list[int]:
        """The symbols of bytes; characters without a symbol become byte tokens.

        A character that has neither is left out, as the tokenizer does.
        """
        if self._by_bytes:
            pieces = [byte.to_bytes() for byte in data]
        else:  # bytes that are part of no character stand alone
            pieces = [char.encode("utf-8", "surrogateescape") for char in data.decode("utf-8", "surrogateescape")]
        spelled: list[int] = []
        for piece in pieces:
            symbol = self._symbols.get(piece)
            if symbol is not None:
                spelled.append(symbol)
            elif all(map(self._byte_ids.__contains__, piece)):
                spelled += map(self._byte_ids.__getitem__, piece)
        return spelled

    def merge(self, symbols: Sequence[int], made: list[int] | None = None) -> list[int]:
        """Merge symbols by BPE: always the merge of lowest rank, the leftmost of equal ones.

        The places in the table of the merges that were done are added to ``made``.
        """
        ids = list(symbols)
        if len(ids) > _SHORT:
            return self._merge_long(ids, made)
        ranks = [self._rank_of(first, second) for first, second in pairwise(ids)]
        while ranks and (lowest := min(ranks)) < _NEVER:
            at = ranks.index(lowest)
            place = self._places[ids[at] << 32 | ids[at + 1]]
            ids[at : at + 2] = [self._results[place]]
            if made is not None:
                made.append(place)
            del ranks[at]
            if at > 0:
                ranks[at - 1] = self._rank_of(ids[at - 1], ids[at])
            if at < len(ranks):
                ranks[at] = self._rank_of(ids[at], ids[at + 1])
        return ids

    def _merge_long(self, ids: list[int], made: list[int] | None = None) -> list[int]:
        """As `merge`, in n log n time: a heap of merges, each at the place of its first part."""
        end = len(ids)
        following, before = list(range(1, end + 1)), list(range(-1, end - 1))
        heap = [(rank, at, *pair) for at, pair in enumerate(pairwise(ids)) if (rank := self._rank_of(*pair)) < _NEVER]
        heapify(heap)
        while heap:
            _, at, first, second = heappop(heap)
            after = following[at]
            # A merge whose parts have become others since is not there any more.
            if ids[at] != first or after == end or ids[after] != second:
                continue
            place = self._places[first << 32 | second]
            ids[at], ids[after] = self._results[place], _GONE
            if made is not None:
                made.append(place)
            following[at] = then = following[after]
            if then < end:
                before[then] = at
                if (rank := self._rank_of(ids[at], ids[then])) < _NEVER:
                    heappush(heap, (rank, at, ids[at], ids[then]))
            if (left := before[at]) >= 0 and (rank := self._rank_of(ids[left], ids[at])) < _NEVER:
                heappush(heap, (rank, left, ids[left], ids[at]))
        return [token for token in ids if token != _GONE]

    def _rank_of(self, first: int, second: int) -> int:
        return self._ranks[self._places[first << 32 | second]]

    def _with_characters(self, tokens: list[int]) -> list[int]:
        """Replace runs of byte tokens by the characters that they spell, where these have a symbol."""
        result: list[int] = []
        for are_bytes, group in groupby(tokens, self._byte_of.__contains__):
            run = list(group)
            result += self.spell(bytes(map(self._byte_of.__getitem__, run))) if are_bytes else run
        return result


class _Places(dict[int, int]):
    """Pair -> its place in the table, or -1 if it does not merge; filled as pairs are asked for."""

    def __init__(self, table: MergeTable) -> None:
        super().__init__()
        self._pairs = table.pairs.data
        merges = np.bincount(table.pairs >> 32, minlength=len(table.left) + 1)
        self._first = np.append(0, np.cumsum(merges)).astype(np.int32).data  # place of the first merge of each id

    def __missing__(self, pair: int) -> int:
        if len(self) >= _REMEMBERED:
            self.clear()
        first, end = pair >> 32, self._first[(pair >> 32) + 1]
        place = bisect_left(self._pairs, pair, self._first[first], end)
        found = self[pair] = place if place < end and self._pairs[place] == pair else -1
        return found


def _unordered(table: MergeTable) -> frozenset[int]:
    """The tokens in whose tree of merges some part has a higher rank than the whole."""
    made = np.flatnonzero(table.left >= 0)
    left, right, rank = table.left[made], table.right[made], table.rank
    found = np.zeros(len(table.left), np.bool_)
    found[made] = (rank[left] > rank[made]) | (rank[right] > rank[made])
    while True:
        wider = found[made] | found[left] | found[right]
        if (wider == found[made]).all():
            return frozenset(np.flatnonzero(found).tolist())
        found[made] = wider
