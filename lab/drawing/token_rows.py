"""What single draft tokens say at a frontier, in target ids: many at once by table, a few byte by byte.

A draft token's *row* has the target ids of its bytes and then `END`: what comes next is up to another draft token.
`UNKNOWN` stands where nothing is known to follow, and at the beginning of a row that says nothing here.

Once a token of a row is drawn, nothing repairs it any more. So tokens that would merge into what is there are left out
before anything is drawn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.alignment import NONE
from spectool.tokenization.incremental.by_ids import IncrementalBPE
from spectool.tokenization.incremental.by_text import whole_characters

END, UNKNOWN = -1, -2
LONGEST_SPELLING = 8  # target ids of a row
CHECKED = 0.005  # probability from which on a draft token's boundary is looked at, and its bytes where it has no row
_Ids = NDArray[np.int32]
_Mask = NDArray[np.bool_]
_Rows = tuple[_Ids, dict[int, bytes]]  # rows, and by index the bytes of a character that a token begins after its row


def spelling_table(spellings: Sequence[Sequence[int]], counterparts: _Ids, token_bytes: Sequence[bytes]) -> _Ids:
    """The row of each draft token inside a text, int32 [draft ids, LONGEST_SPELLING + 1].

    A special token says its counterpart, and nothing follows. Parts of characters have no row: it begins with
    `UNKNOWN`.

    Args:
        spellings: Spelling of each draft token; empty where it is no whole characters.
        counterparts: Target id with the same bytes or the same role, -1 where none; int32 [draft ids].
        token_bytes: Bytes of each draft token; none of special ones.
    """
    lengths = np.array(list(map(len, spellings)))
    ids, begin = np.fromiter(chain.from_iterable(spellings), np.int32), np.cumsum(lengths) - lengths
    rows = np.full((len(lengths), LONGEST_SPELLING + 1), END, np.int32)
    for column in range(LONGEST_SPELLING):
        longer = np.flatnonzero(lengths > column)
        rows[longer, column] = ids[begin[longer] + column]
    rows[lengths > LONGEST_SPELLING, LONGEST_SPELLING] = UNKNOWN
    rows[lengths == 0, 0] = UNKNOWN
    special = np.array([not raw for raw in token_bytes])
    rows[special, 0] = np.where(counterparts[special] == NONE, UNKNOWN, counterparts[special])
    rows[special, 1] = UNKNOWN
    return rows


@dataclass(frozen=True, slots=True)
class TokenRows:
    """Makes the rows of draft tokens at one frontier.

    Attributes:
        table: The pair's `spelling_table`.
        token_bytes: Bytes of each draft token.
        encoder: Joins target ids.
        known: Spellings made byte by byte so far; added to.
        committed: Committed target ids of the present text; longer while boundaries are looked at.
        overlaps: Committed bytes that a plain first token repeats, and those that a healed one does.
        at_start: The target ids of a draft token at the start of a text; None where the text has begun.
        check_first: Whether first tokens that would merge into the last committed one are left out.
        is_settled: Whether target ids after the committed ones are likely to stay when the draft goes on.
    """

    table: _Ids
    token_bytes: Sequence[bytes]
    encoder: IncrementalBPE
    known: dict[tuple[int, bytes, bytes], tuple[tuple[int, ...], bytes]]
    committed: list[int]
    overlaps: tuple[bytes, bytes]
    at_start: Callable[[int], tuple[int, ...]] | None
    check_first: bool
    is_settled: Callable[[Sequence[int]], bool]

    def first(self, tokens: _Ids, likely: _Mask, healed: bool) -> _Rows:
        """As `following`, for first tokens after the committed text; ``healed`` ones replace the last context token."""
        if self.at_start is None or healed:
            rows, pending = self._rows(tokens, likely, self.overlaps[healed], b"")
        else:
            rows, pending = np.full((len(tokens), self.table.shape[1]), UNKNOWN, np.int32), {}
            for i in np.flatnonzero(likely & (tokens < len(self.token_bytes))).tolist():
                _write(rows[i], self.at_start(int(tokens[i])))
        if self.check_first:
            rows[self._merging(rows, likely, ())] = UNKNOWN
        return rows, pending

    def following(
        self, tokens: _Ids, likely: _Mask, drawn: Sequence[int], pending: bytes, held: int | None = None
    ) -> _Rows:
        """The rows of draft tokens that stand after others, int32 [tokens, LONGEST_SPELLING + 1].

        Args:
            tokens: Draft ids [tokens].
            likely: Which of them are looked at byte by byte where the table is not enough [tokens].
            drawn: Target ids after the committed ones.
            pending: Bytes of a character that the draft has begun and that are not drawn.
            held: Last target id before them, if it is not drawn; where the two would merge, both are spelled together.
        """
        rows, left = self._rows(tokens, likely, b"", pending)
        if held is not None:
            merging = self._merging(rows, likely, (*drawn, held))
            known = rows[:, 0] != UNKNOWN
            rows[known, 1:] = rows[known, :-1]
            rows[known, 0] = held
            rows[rows[:, -1] >= 0, -1] = UNKNOWN
            rows[merging] = UNKNOWN
            before = self.encoder.token_bytes[held] + pending
            for i in np.flatnonzero(merging & likely).tolist():
                ids, left[i] = self._spell(int(tokens[i]), b"", before)
                _write(rows[i], ids, bool(left[i]))
        if drawn or self.check_first:
            rows[self._merging(rows, likely, drawn)] = UNKNOWN
        return rows, left

    def _rows(self, tokens: _Ids, likely: _Mask, overlap: bytes, pending: bytes) -> _Rows:
        """The rows of draft tokens that begin with ``overlap`` and continue a character's ``pending`` bytes."""
        inside = tokens < len(self.table)  # a model may have more ids than its tokenizer
        rows = np.where(inside[:, None], self.table[np.where(inside, tokens, 0)], UNKNOWN)
        special = rows[:, 1] == UNKNOWN
        by_bytes = inside & ~special if overlap or pending else rows[:, 0] == UNKNOWN
        rows[by_bytes] = UNKNOWN
        left: dict[int, bytes] = {}
        for i in np.flatnonzero(by_bytes & inside & likely).tolist():
            ids, rest = self._spell(int(tokens[i]), overlap, pending)
            _write(rows[i], ids, bool(rest))
            if rest:
                left[i] = rest
        return rows, left

    def _spell(self, token: int, overlap: bytes, pending: bytes) -> tuple[tuple[int, ...], bytes]:
        """The target ids of a token's whole characters, and the bytes after them."""
        key = token, overlap, pending
        found = self.known.get(key)
        if found is None:
            raw, found = self.token_bytes[token], ((), b"")
            if overlap == self.overlaps[0] and not raw.startswith(b" "):
                overlap = overlap.removeprefix(b" ")  # artificial: a draft token need not write it
            if raw.startswith(overlap):
                data = pending + raw[len(overlap) :]
                whole = whole_characters(data)
                found = self.encoder.encode(data[:whole]), data[whole:]
            self.known[key] = found
        return found

    def _merging(self, rows: _Ids, likely: _Mask, drawn: Sequence[int]) -> _Mask:
        """Which rows begin with a target id that likely ones have and that would merge into the one before."""
        merging: list[int] = []
        floor = len(self.committed)
        self.committed.extend(drawn)
        try:
            asked = likely & (rows[:, 0] >= 0) & (rows[:, 1] != UNKNOWN)
            for token in np.unique(rows[asked, 0]).tolist():
                if not self.encoder.may_hold(self.committed, self.encoder.token_bytes[token]):
                    merging.append(token)
        finally:
            del self.committed[floor:]
        return np.isin(rows[:, 0], merging)


def _write(row: _Ids, ids: Sequence[int], unfinished: bool = False) -> None:
    """Write ids into a row that is all `UNKNOWN`; a longer list than fits stays unknown after its last id."""
    row[: min(len(ids), LONGEST_SPELLING)] = ids[:LONGEST_SPELLING]
    if len(ids) <= LONGEST_SPELLING and (ids or unfinished):
        row[len(ids) :] = END
