"""Where the end of a token sequence has been seen before, kept as the sequence grows.

    tokens   a b c d e f a b c       longest suffix seen before: a b c
                   ^                 followed there by d, at place 3

A suffix automaton: every state stands for the token sequences that end at the same places, and knows the latest of
them. Amortised constant time for each token, a few microseconds. What the latest tokens have changed is noted, so that
a text which goes another way from some place near its end, as the next turn of a conversation does, is not read again.

Source: Blumer et al. 1985, "The smallest automaton recognizing the subwords of a text".
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from spectool.tokenization.incremental.common_prefix import common_prefix

_REFRESHED = 32  # states that learn of a new occurrence, longest first: more make long repetitions quadratic
_UNDOABLE = 4096  # latest tokens, at least, that can be taken back: an answer
_EACH = 4  # entries about a token in what can be taken back
_BROKEN_OFF = -1  # last state while a token is added or taken back: Ctrl-C can leave it so


class Repeat(NamedTuple):
    """The longest suffix that has been seen before."""

    follower: int  # place of the token that followed its latest earlier occurrence; 0 where there is none
    length: int  # tokens in it; 0 where no suffix has been seen before


class History:
    """A growing sequence of ``tokens``; ``repeat`` is the longest suffix of it that occurs earlier as well."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.repeat = Repeat(0, 0)
        # By state; state 0 is the empty sequence.
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]  # state of the longest suffix that ends at more places
        self._length = [0]  # of the longest sequence
        self._end = [-1]  # latest place at which its sequences end
        self._last = 0
        # What the latest tokens have changed, flat, because a tuple for each would double their time: tables, places in
        # them and what was there, None for nothing. Of each token: last state, states and repeat before, and changes.
        self._changes: list[Any] = []
        self._added: list[Any] = []

    def become(self, tokens: Sequence[int]) -> None:
        """Change to another sequence; only what follows the common beginning is read, where that is near the end."""
        held = len(self.tokens)
        kept = held if self.tokens == list(tokens[:held]) else common_prefix(self.tokens, tokens)
        if self._last == _BROKEN_OFF or held - kept > len(self._added) // _EACH:
            self.__init__()  # type: ignore[misc]
            kept = 0
        while len(self.tokens) > kept:
            self._take_back()
        for token in tokens[kept:]:
            self.append(int(token))

    def append(self, token: int) -> None:
        """Add one token id."""
        following, link, length, end = self._next, self._link, self._length, self._end
        changes, known = self._changes, len(self._changes)
        last, states, repeat = self._last, len(link), self.repeat
        self._last = _BROKEN_OFF
        place = len(self.tokens)
        self.tokens.append(token)
        state = self._add({}, length[last] + 1, place)
        at = last
        while at >= 0 and token not in following[at]:
            changes += following[at], token, None
            following[at][token] = state
            at = link[at]
        if at >= 0:
            seen = following[at][token]
            if length[seen] != length[at] + 1:
                shorter = self._add(dict(following[seen]), length[at] + 1, end[seen])
                changes += link, seen, link[seen]
                link[shorter] = link[seen]
                link[seen] = shorter
                while at >= 0 and following[at].get(token) == seen:
                    changes += following[at], token, seen
                    following[at][token] = shorter
                    at = link[at]
                seen = shorter
            link[state] = seen
        self.repeat = Repeat(end[link[state]] + 1, length[link[state]])
        at = link[state]
        for _ in range(_REFRESHED):
            if at == 0:
                break
            changes += end, at, end[at]
            end[at] = place
            at = link[at]
        self._added += last, states, repeat, len(changes) - known
        if len(self._added) > 2 * _UNDOABLE * _EACH:
            forgotten = len(self._added) - _UNDOABLE * _EACH
            del changes[: sum(self._added[_EACH - 1 : forgotten : _EACH])], self._added[:forgotten]
        self._last = state

    def _take_back(self) -> None:
        """Undo the latest `append`."""
        self._last = _BROKEN_OFF
        last, states, self.repeat, count = self._added[-_EACH:]
        del self._added[-_EACH:]
        for _ in range(count // 3):
            before, place, table = self._changes.pop(), self._changes.pop(), self._changes.pop()
            if before is None:
                del table[place]
            else:
                table[place] = before
        for each in (self._next, self._link, self._length, self._end):
            del each[states:]
        self.tokens.pop()
        self._last = last

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
