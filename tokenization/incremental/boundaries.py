"""What a `boundary_table` says about the boundaries between tokens: only their outermost characters count."""

from collections.abc import Sequence
from functools import cache

from spectool.tokenization.added_tokens import AddedTokens
from spectool.tokenization.incremental.pretokens import JOIN, LOOK, SPLIT, BoundaryTable
from spectool.tokenization.surfaces import text_of

_UNSEEN = -2  # what comes before a boundary is not known from a few tokens
_OPEN = -1  # a token ends inside a character that it began
_CHARACTER = 4  # bytes of the longest character


class Boundaries:
    """Boundaries between the ids of one tokenizer.

    Attributes:
        splits: Whether its pre-tokenizer splits texts at all.
        shape: Token -> what a pre-tokenizer sees of it: the `classes` of its surface. They are remembered.
    """

    def __init__(self, surfaces: Sequence[bytes], table: BoundaryTable, added: AddedTokens) -> None:
        """Prepare for a tokenizer with these surfaces, this `boundary_table` and these added tokens."""
        self.splits = table.splits
        self.shape = cache(lambda token: self.classes(surfaces[token]))
        self._surfaces, self._added = surfaces, added
        self._alphabet, self._size = table.alphabet, table.alphabet.size
        verdicts = table.verdicts
        self._table: list[list[list[int]]] = verdicts.tolist()
        self._sure: list[list[bool]] = (verdicts == SPLIT).all(axis=0).tolist()
        # Last and first characters, and last ones alone, for which it does not matter what stood before them.
        same = (verdicts == verdicts[-1]).all(axis=0)
        self._settled: list[list[bool]] = same.tolist()
        self._indifferent: list[bool] = same.all(axis=1).tolist()

    def classes(self, data: bytes) -> bytes:
        """Return the classes of the characters of a text; none for bytes that are no text."""
        return self._alphabet.of(text_of(data))

    def tail(self, ids: Sequence[int], at: int, begin: int) -> int:
        """Return what `kind` has to know of ``ids[begin:at]``: classes of the last two characters, packed."""
        if not self.splits:
            return 0
        shape = self.shape(ids[at - 1])
        if not shape:
            return self._split_tail(ids, at, begin)
        if len(shape) > 1:
            return self._size * shape[-2] + shape[-1]
        # A single character: the class before it belongs to the token before.
        if self._indifferent[shape[0]] or at - 1 == begin or ids[at - 2] in self._added:
            return self._size * self._size + shape[0]
        earlier = self.shape(ids[at - 2])
        return self._size * earlier[-1] + shape[0] if earlier else _UNSEEN

    def _split_tail(self, ids: Sequence[int], at: int, begin: int) -> int:
        """As `tail`, where the last character is split over tokens, or not whole yet."""
        data = b""
        for start in range(at - 1, max(begin, at - _CHARACTER - 1) - 1, -1):
            data = self._surfaces[ids[start]] + data
            if data[0] & 0xC0 == 0x80:
                continue
            try:
                classes = self._alphabet.of(data.decode())
            except UnicodeDecodeError as error:
                # An unfinished character in a token that begins with a whole one has been judged by that one.
                return _OPEN if start == at - 1 and error.end == len(data) and error.start > 0 else _UNSEEN
            if len(classes) > 1:
                return self._size * classes[-2] + classes[-1]
            if self._indifferent[classes[-1]] or start == begin:
                return self._size * self._size + classes[-1]
        return _UNSEEN

    def kind(self, tail: int, after: int) -> int:
        """Return what the pre-tokenizer does between ids with this `tail` and ``after``: `SPLIT`, `JOIN`, `LOOK`."""
        if not self.splits:
            return JOIN
        first = self._first(after)
        if tail == _UNSEEN or (tail == _OPEN) != (first is None):
            return LOOK
        second, last = divmod(tail, self._size)
        return JOIN if first is None else self._table[second][last][first]

    def surely_split(self, before: int, after: int) -> bool:
        """Return whether text is split between two ids whatever stands around."""
        left, right = self.shape(before), self.shape(after)
        return bool(left and right) and self._sure[left[-1]][right[0]]

    def settled(self, before: int, after: int) -> bool:
        """Return whether two ids show all that the boundary between them can depend on."""
        shape = self.shape(before)
        if not shape or not self.splits:
            return not self.splits
        if len(shape) > 1 or self._indifferent[shape[0]]:
            return True
        first = self._first(after)
        return first is not None and self._settled[shape[0]][first]

    def _first(self, token: int) -> int | None:
        """Return the class of a token's first character, None if the token begins inside one."""
        if shape := self.shape(token):
            return shape[0]
        begun = (self.classes(self._surfaces[token][:length]) for length in range(1, _CHARACTER + 1))
        return next((classes[0] for classes in begun if classes), None)
