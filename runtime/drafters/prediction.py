"""Drafts from a text that the answer is expected to repeat, such as a file that is to be edited.

    prediction   a b c d e f g h i j k        the answer is taken to begin like it
    answer       a b c X Y f g                after X nothing is proposed; f g is found again, and h i j k follows

Where two tokens occur more than once, the first place after the one where the answer went its own way counts. A draft
is a few times as long as what has just matched, so that two tokens that agree by accident cost little.
"""

from bisect import bisect_left
from collections.abc import Sequence

from spectool.runtime.drafters.drafter import Drafter, Proposal
from spectool.runtime.settings import LONGEST_DRAFT

_CONTEXT = 2  # tokens by which a place is found again
_SURE = 8  # matching tokens after which a place is taken to be the right one
_AT_START = 8  # draft tokens before anything is known
_FACTOR = 4  # draft tokens for each token that matches
_NEAR = 16  # tokens since the answer went its own way within which it is likely to come back


class PredictionDrafter(Drafter):
    """Follows a predicted text, and finds the way back to it; takes about a microsecond for a token.

    Attributes:
        tokens: Token ids of the prediction.
        found: Whether the answer follows it now, so that there is something to propose.
    """

    name = "prediction"
    longest = LONGEST_DRAFT
    draws = False

    def __init__(self, tokens: Sequence[int]) -> None:
        """Follow ``tokens``, the prediction in the target's token ids. A copy shares what is prepared here."""
        self.tokens = list(tokens)
        self._places: dict[tuple[int, ...], list[int]] = {}  # where the text goes on after each pair of tokens
        for place in range(_CONTEXT, len(self.tokens) + 1):
            self._places.setdefault(tuple(self.tokens[place - _CONTEXT : place]), []).append(place)
        self.start(())

    def start(self, prompt: Sequence[int]) -> None:
        """Begin an answer, which is taken to begin like the prediction."""
        self.found = bool(self.tokens)
        self._place = self._sure = 0  # what is expected next; the same of the latest place that was sure
        self._matching = self._astray = 0  # tokens that have matched in a row, or that have not
        self._latest: tuple[int, ...] = ()
        self._repeated = bytearray(len(self.tokens))

    def may_propose(self) -> bool:
        """Whether the answer follows the prediction, or is likely to come back to it soon."""
        return self.found or self._astray < _NEAR

    @property
    def repeated(self) -> int:
        """Tokens of the prediction that the answer has repeated so far, each counted once."""
        return sum(self._repeated)

    def propose(self, limit: int) -> Proposal:
        """What follows in the prediction."""
        length = min(limit, _FACTOR * self._matching or _AT_START) if self.found else 0
        return Proposal(self.tokens[self._place : self._place + length], self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        """Follow the answer."""
        for token in tokens:
            self._latest = (*self._latest[1 - _CONTEXT :], token)
            if self.found and self.tokens[self._place] == token:
                self._matching += 1
                self._repeated[self._place] = 1
            elif not self._find():
                continue
            self._place += 1
            if self._matching >= _SURE:
                self._sure = self._place
            self.found = self._place < len(self.tokens)

    def _find(self) -> bool:
        """Find the place of the latest token again; if it cannot be found, the answer goes its own way."""
        places = self._places.get(self._latest)
        self.found, self._astray = places is not None, 0 if self.found or places else self._astray + 1
        if places is None:
            return False
        following = places[min(bisect_left(places, self._sure), len(places) - 1)]
        self._matching, self._place = _CONTEXT, following - 1
        self._repeated[following - _CONTEXT : following] = b"\1" * _CONTEXT
        return True
