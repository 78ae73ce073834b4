"""What single draft tokens say at a frontier, in target ids: many at once by table, a few with care.

A draft token's *row* has the target ids of its bytes, and then `OVER`: what comes next is up to another draft token.
`CUT` stands where nothing is known to follow, and at the beginning of a row that says nothing here.

Once a token of a spelling is drawn, nothing repairs it any more. So tokens that would merge into what is
there are left out before anything is drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.alignment import NONE, IdLists
from spectool.tokenization.incremental.by_ids import CanonicalIds
from spectool.tokenization.incremental.by_text import whole_characters
from spectool.tokenization.surfaces import Surfaces

OVER, CUT = -1, -2
LONGEST = 8  # target ids of a spelling that are known
CHECKED = 0.005  # probability from which on a draft token's boundary is looked at, and its bytes where it has no row
_Ids = NDArray[np.int32]


def spelling_table(inside: IdLists, counterparts: _Ids, surfaces: Surfaces) -> _Ids:
    """Return the row of each draft token inside a text.

    A special token says its counterpart, and nothing follows. Parts of characters have no row: it begins with `CUT`.

    Args:
        inside: Spelling of each draft token; empty where it is no whole characters.
        counterparts: Target id with the same bytes or the same role, -1 where none; int32 [draft ids].
        surfaces: Bytes of each draft token; none of special ones.

    Returns:
        Rows, int32 [draft ids, LONGEST + 1].
    """
    lengths = np.diff(inside.offsets)
    rows = np.full((len(lengths), LONGEST + 1), OVER, np.int32)
    for column in range(LONGEST):
        longer = np.flatnonzero(lengths > column)
        rows[longer, column] = inside.values[inside.offsets[longer] + column]
    rows[lengths > LONGEST, LONGEST] = CUT
    rows[lengths == 0, 0] = CUT
    special = np.diff(surfaces.offsets) == 0
    rows[special, 0] = np.where(counterparts[special] == NONE, CUT, counterparts[special])
    rows[special, 1] = CUT
    return rows


@dataclass(frozen=True, slots=True)
class Speller:
    """Spells draft tokens at one frontier.

    Attributes:
        table: The pair's `spelling_table`.
        surfaces: Bytes of each draft token.
        engine: Joins target ids; None where the table is all there is.
        known: Spellings made with care so far; added to.
        committed: Committed target ids; longer while boundaries are looked at.
        begin: How many of them stand before the present text.
        behind: Committed bytes that a plain first token repeats, and those that a healed one does.
        text_start: Spellings of plain first tokens where a text has not begun; None where it has.
        check_first: Whether first tokens that would merge into the last committed one are left out.
        check: Whether later ones are.
    """

    table: _Ids
    surfaces: Sequence[bytes]
    engine: CanonicalIds | None
    known: dict[tuple[int, bytes, bytes], tuple[tuple[int, ...], bytes]]
    committed: list[int]
    begin: int
    behind: tuple[bytes, bytes]
    text_start: Sequence[tuple[int, ...]] | None
    check_first: bool
    check: bool

    def first(self, tokens: _Ids, likely: NDArray[np.bool_], healed: bool) -> tuple[_Ids, dict[int, bytes]]:
        """As `following`, for first tokens after the committed text; ``healed`` ones replace the last context token."""
        behind = self.behind[healed]
        if self.text_start is None or healed:
            rows, carried = self._spell(tokens, likely, behind, b"")
        else:
            rows, carried = np.full((len(tokens), self.table.shape[1]), CUT, np.int32), {}
            for place in np.flatnonzero(likely & (tokens < len(self.surfaces))).tolist():
                _write(rows[place], self.text_start[tokens[place]])
        if self.check_first:
            rows[self._merging(rows, likely, ())] = CUT
        return rows, carried

    def following(
        self, tokens: _Ids, likely: NDArray[np.bool_], drawn: Sequence[int], carried: bytes, held: int | None = None
    ) -> tuple[_Ids, dict[int, bytes]]:
        """Spell draft tokens that stand after others.

        Args:
            tokens: Draft ids [tokens].
            likely: Which of them are looked at with care, where a table is not enough [tokens].
            drawn: Target ids after the committed ones.
            carried: Bytes of a character that the draft has begun and that are not drawn.
            held: Last target id before them, if it is not drawn; where the two would merge, both are spelled together.

        Returns:
            A row of each, int32 [tokens, LONGEST + 1]; and by place the bytes of a character that a token begins
            behind its row.
        """
        rows, left = self._spell(tokens, likely, b"", carried)
        if held is not None and self.engine is not None:
            merging = self._merging(rows, likely, (*drawn, held))
            said = rows[:, 0] != CUT
            rows[said, 1:] = rows[said, :-1]
            rows[said, 0] = held
            rows[rows[:, -1] >= 0, -1] = CUT
            rows[merging] = CUT
            before = self.engine.surfaces[held] + carried
            for place in np.flatnonzero(merging & likely).tolist():
                ids, left[place] = self._spell_bytes(int(tokens[place]), b"", before)
                _write(rows[place], ids, bool(left[place]))
        if self.check if drawn else self.check_first:
            rows[self._merging(rows, likely, drawn)] = CUT
        return rows, left

    def _spell(
        self, tokens: _Ids, likely: NDArray[np.bool_], behind: bytes, carried: bytes
    ) -> tuple[_Ids, dict[int, bytes]]:
        inside = tokens < len(self.table)  # a model may have more ids than its tokenizer
        rows = np.where(inside[:, None], self.table[np.where(inside, tokens, 0)], CUT)
        special = rows[:, 1] == CUT
        care = inside & ~special if behind or carried else rows[:, 0] == CUT
        rows[care] = CUT
        left: dict[int, bytes] = {}
        if self.engine is None:
            return rows, left
        for place in np.flatnonzero(care & inside & likely).tolist():
            ids, rest = self._spell_bytes(int(tokens[place]), behind, carried)
            _write(rows[place], ids, bool(rest))
            if rest:
                left[place] = rest
        return rows, left

    def _spell_bytes(self, token: int, behind: bytes, carried: bytes) -> tuple[tuple[int, ...], bytes]:
        """Return the target ids of a token's whole characters, and the bytes behind them."""
        key = token, behind, carried
        found = self.known.get(key)
        if found is None:
            surface, found = self.surfaces[token], ((), b"")
            if behind == self.behind[0] and not surface.startswith(b" "):
                behind = behind.removeprefix(b" ")  # artificial: a draft token need not write it
            if self.engine is not None and surface.startswith(behind):
                data = carried + surface[len(behind) :]
                whole = whole_characters(data)
                found = self.engine.spell(data[:whole]), data[whole:]
            self.known[key] = found
        return found

    def _merging(self, rows: _Ids, likely: NDArray[np.bool_], drawn: Sequence[int]) -> NDArray[np.bool_]:
        """Return which rows begin with a target id that likely ones have and that would merge into the one before."""
        merging: list[int] = []
        floor = len(self.committed)
        self.committed.extend(drawn)
        try:
            asked = likely & (rows[:, 0] >= 0) & (rows[:, 1] != CUT)
            for token in np.unique(rows[asked, 0]).tolist():
                if self.engine is not None and not self.engine.boundary_holds(self.committed, (token,), self.begin):
                    merging.append(token)
        finally:
            del self.committed[floor:]
        return np.isin(rows[:, 0], merging)


def counterparts_alone(counterparts: _Ids) -> Speller:
    """Return what spells draft tokens by their counterparts, int32 [draft ids], and others not at all."""
    table = np.stack([np.where(counterparts == NONE, CUT, counterparts), np.full(len(counterparts), OVER)], axis=1)
    return Speller(table.astype(np.int32), (), None, {}, [], 0, (b"", b""), None, False, False)


def _write(row: _Ids, ids: Sequence[int], unfinished: bool = False) -> None:
    """Write a spelling into a row that is all `CUT`; a longer one than fits stays cut behind its last id."""
    row[: min(len(ids), LONGEST)] = ids[:LONGEST]
    if len(ids) <= LONGEST and (ids or unfinished):
        row[len(ids) :] = OVER
