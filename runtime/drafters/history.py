"""Where the end of a token sequence has been seen before, kept as the sequence grows.

    tokens   a b c d e f a b c       longest suffix seen before: a b c
                   ^                 followed there by d, at place 3

A suffix automaton: every state stands for the token sequences that end at the same places, and knows the latest of
them. Amortised constant time for each token, a few microseconds.

Source: Blumer et al. 1985, "The smallest automaton recognizing the subwords of a text".
"""

from collections.abc import Sequence
from typing import NamedTuple

_REFRESHED = 32  # states that learn of a new occurrence, longest first: more make long repetitions quadratic


class Repeat(NamedTuple):
    """The longest suffix that has been seen before."""

    follower: int  # place of the token that followed its latest earlier occurrence; 0 where there is none
    length: int  # tokens in it; 0 where no suffix has been seen before


class History:
    """A growing token sequence.

    Attributes:
        tokens: All token ids.
        repeat: The longest suffix of them that occurs earlier as well.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.repeat = Repeat(0, 0)
        # By state; state 0 is the empty sequence.
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]  # state of the longest suffix that ends at more places
        self._length = [0]  # of the longest sequence
        self._end = [-1]  # latest place at which its sequences end
        self._last = 0

    def append(self, token: int) -> None:
        """Add one token id."""
        following, link, length, end = self._next, self._link, self._length, self._end
        place = len(self.tokens)
        self.tokens.append(token)
        state = self._add({}, self._length[self._last] + 1, place)
        at = self._last
        while at >= 0 and token not in following[at]:
            following[at][token] = state
            at = link[at]
        if at >= 0:
            seen = following[at][token]
            if length[seen] != length[at] + 1:
                shorter = self._add(dict(following[seen]), length[at] + 1, end[seen])
                link[shorter] = link[seen]
                link[seen] = shorter
                while at >= 0 and following[at].get(token) == seen:
                    following[at][token] = shorter
                    at = link[at]
                seen = shorter
            link[state] = seen
        self._last = state
        self.repeat = Repeat(end[link[state]] + 1, length[link[state]])
        at = link[state]
        for _ in range(_REFRESHED):
            if at == 0:
                break
            end[at] = place
            at = link[at]

    def repeat_after(self, tokens: Sequence[int]) -> Repeat:
        """What ``repeat`` would be with ``tokens`` appended, among occurrences in the sequence as it is."""
        if not tokens:
            return self.repeat
        following, link = self._next, self._link
        at, length = max(link[self._last], 0), self.repeat.length
        for token in tokens:
            while at > 0 and token not in following[at]:
                at = link[at]
                length = self._length[at]
            at, length = (following[at][token], length + 1) if token in following[at] else (0, 0)
        return Repeat(self._end[at] + 1, length)

    def _add(self, following: dict[int, int], length: int, end: int) -> int:
        """Add a state, linked to the empty sequence for now, and return it."""
        self._next.append(following)
        self._link.append(0)
        self._length.append(length)
        self._end.append(end)
        return len(self._link) - 1
