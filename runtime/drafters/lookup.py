"""Drafts that cost no model: from a dictionary, from the request's own history, or from both.

A proposal is a chain. At each step every dictionary knows a token for the longest known suffix of the text so far, and
the history knows the token that followed the last time. The most probable of these is appended, and the next step
begins after it.

How probable they are is assumed at first, and then learnt from what the text has said so far: of a dictionary by what
it states, of a repeat by its length, and of both by whether they say the same. The assumptions were learnt on people's
Polish and Ukrainian text that no dictionary had counted (``python benchmarks/calibration.py``).

It prints the same for any text, such as answers that models wrote, on which dictionaries and repeats differ little.

Source: DictSpec, section 3.3 (longest matching suffix); prompt lookup decoding (Saxena, 2023).
"""

import copy
from collections.abc import Sequence
from typing import Any, TypeAlias

from spectool.artifacts.dictionary import START, Dictionary, Match, State
from spectool.runtime.drafters.drafter import Drafter, Proposal
from spectool.runtime.drafters.history import History, Repeat

TENTHS = 10
FROM_PACKS = 0.86, 0.67, 0.6, 0.61, 0.64, 0.62, 0.6, 0.57, 0.57, 0.68
"""By tenths of the probability that a dictionary from packs states, how often it was right as a share of that."""
FROM_TEXT = 0.57, 0.6, 0.64, 0.61, 0.67, 0.66, 0.73, 0.71, 0.82, 0.87
"""The same of a dictionary that was counted in text."""
AGAINST_REPEAT = 0.3
"""How often a dictionary is right, as a share of what it says otherwise, where the text's own repeats say other."""
REPEATS = {True: 0.6, False: 3.5, None: 3.0}
"""c: a repeat of m tokens goes on as before with probability m / (m + c), where a dictionary says the same, where it
says other, and where there is none."""

_SHORTEST = 2  # tokens of history that must repeat: after one, a dictionary is nearly always the better guess
_LONGEST = 24  # repeats of more tokens are as good as these
_WEIGHT = 10.0  # guesses of each level that the assumption counts for
_DICTIONARY, _HISTORY = 1, 2  # where a token is from, as bits
_NAMES = {_DICTIONARY: "dictionary", _HISTORY: "history", _DICTIONARY | _HISTORY: "dictionary+history"}

_NOT_ASKED: Any = object()
_State: TypeAlias = Any  # of a sequence: that of the one dictionary, or a list with the state of each


class Calibration:
    """For each level of stated probability, the share of it that came true.

    Attributes:
        shares: Right guesses of each level / the sum of their stated probabilities.
    """

    __slots__ = ("_right", "_stated", "shares")

    def __init__(self, shares: Sequence[float], weight: float) -> None:
        """Begin with a share for each level, which counts as much as guesses of which ``weight`` in all is said."""
        self._right = [weight * share for share in shares]
        self._stated = [weight] * len(shares)
        self.shares = [*shares]

    def learn(self, level: int, stated: float, right: bool) -> None:
        """Learn whether a guess was right of which ``stated`` was said."""
        self._right[level] += right
        self._stated[level] += stated
        self.shares[level] = self._right[level] / self._stated[level]


def tenth(probability: float) -> int:
    """The level of a stated probability: 0 for those below 0.1, 9 for 0.9 and more.

    >>> tenth(0.05), tenth(0.95), tenth(1.0)
    (0, 9, 9)
    """
    return min(TENTHS - 1, int(TENTHS * probability))


class LookupDrafter(Drafter):
    """Drafts from dictionaries, the request's own history, or both; never from a model."""

    draws = False

    def __init__(
        self,
        dictionary: Dictionary | Sequence[Dictionary] | None = None,
        history: bool = False,
        min_probability: float = 0.0,
    ) -> None:
        """Draft from open dictionaries of the target's tokenizer, the ``history`` of the request, or both.

        Of several dictionaries, the one whose token is most probable is followed at each step, and the last of those
        that are equally sure. A step takes as much longer as there are more of them.

        A proposal ends before its probability falls below ``min_probability``, 0..1. Higher values draft less and are
        right more often.
        """
        given: Any = [] if dictionary is None else dictionary
        dictionaries: list[Dictionary] = [*given] if isinstance(given, Sequence) else [given]
        self.name = "+".join(["dictionary"] * bool(dictionaries) + ["history"] * history)
        self._min_probability = min_probability
        only = dictionaries[0] if len(dictionaries) == 1 else None
        known = _Dictionaries(dictionaries) if only is None else only
        self._look_up, self._advance, self._max_context = known.look_up, known.advance, known.max_context
        if not dictionaries:  # asking none at every step would double the time of the history
            self._look_up, self._advance = lambda state: None, lambda state, token: state
        self._shares = FROM_PACKS if any(each.manifest.inputs.get("packs") for each in dictionaries) else FROM_TEXT
        self._first: _State = [START] * len(dictionaries) if only is None else START
        self._with_history = history
        self._shortest = _SHORTEST if dictionaries else 1
        self._history = History()
        self.start(())

    def start(self, prompt: Sequence[int]) -> None:
        """Begin after ``prompt``; what it has in common with the text before is not read again."""
        self._state, self._found = self._first, _NOT_ASKED
        if self._with_history:
            self._history.become(prompt)
        self._repeat = self._usable(self._history.repeat)
        self._dictionary = Calibration(self._shares, _WEIGHT)
        self._against_repeat = Calibration([AGAINST_REPEAT], _WEIGHT)
        self._repeats = {
            says: Calibration([m / (m + c) for m in range(_LONGEST + 1)], _WEIGHT) for says, c in REPEATS.items()
        }
        for token in prompt[-self._max_context :] if self._max_context else ():
            self._state = self._advance(self._state, token)

    def fork(self) -> "LookupDrafter":
        """A drafter from the same dictionaries, with a history of its own."""
        forked = copy.copy(self)
        forked._history = History()
        forked.start(())
        return forked

    def propose(self, limit: int) -> Proposal:
        """A chain of at most ``limit`` tokens; takes some microseconds."""
        return self._chain(self._state, self._repeat, (), limit)

    def extend(self, tokens: Sequence[int], limit: int) -> Proposal:
        """What follows ``tokens`` of another drafter; at most ``limit`` tokens more."""
        state = self._state
        for token in tokens:
            state = self._advance(state, token)
        return self._chain(state, self._usable(self._history.repeat_after(tokens)), tokens, limit)

    def commit(self, tokens: Sequence[int]) -> None:
        """Add committed tokens, and learn how well they were predicted."""
        for token in tokens:
            found, (place, length) = self._next(), self._repeat
            copied = None
            if length:
                copied = self._history.tokens[place]
                self._repeats[found and found[0] == copied].learn(length, 1.0, copied == token)
            if found is not None and found[0] != copied:
                if length:
                    self._against_repeat.learn(0, found[1], found[0] == token)
                else:
                    self._dictionary.learn(tenth(found[1]), found[1], found[0] == token)
            self._state, self._found = self._advance(self._state, token), _NOT_ASKED
            if self._with_history:
                self._history.append(int(token))
                self._repeat = self._usable(self._history.repeat)

    def _chain(self, state: _State, repeat: Repeat, begun: Sequence[int], limit: int) -> Proposal:
        """A chain of guesses after the history and ``begun``."""
        place, length = repeat
        history, held = self._history.tokens, len(self._history.tokens)
        tokens = list(begun)
        probabilities: list[float] = []
        probability = 1.0
        sources = 0
        while len(probabilities) < limit:
            found = self._next() if state is self._state else self._look_up(state)
            copied, source, likely = None, 0, 0.0
            if length:
                copied = token = history[place] if place < held else tokens[place - held]
                says = found and found[0] == copied
                source, likely = _HISTORY | (_DICTIONARY if says else 0), self._repeats[says].shares[length]
            if found is not None and found[0] != copied:
                stated = found[1]
                share = self._against_repeat.shares[0] if length else self._dictionary.shares[tenth(stated)]
                if (believed := min(1.0, stated * share)) >= likely:
                    source, token, likely = _DICTIONARY, found[0], believed
            probability *= likely
            if not source or probability < self._min_probability:
                break
            state = self._advance(state, token)
            goes_on = token == copied  # elsewhere the history is no guide
            place, length = (place + 1, min(length + 1, _LONGEST)) if goes_on else (place, 0)
            tokens.append(token)
            probabilities.append(likely)
            sources |= source
        return Proposal(tuple(tokens[len(begun) :]), _NAMES.get(sources, self.name), tuple(probabilities))

    def _next(self) -> Match | None:
        """What the dictionaries say after the text, looked up once."""
        found: Match | None = self._found
        if found is _NOT_ASKED:
            found = self._found = self._look_up(self._state)
        return found

    def _usable(self, repeat: Repeat) -> Repeat:
        """``repeat`` with length 0 where it is too short to go on with."""
        place, length = repeat
        if length < self._shortest:
            return Repeat(place, 0) if length else repeat
        return Repeat(place, _LONGEST) if length > _LONGEST else repeat


class _Dictionaries:
    """Several dictionaries, or none, that are asked as if they were one. A state has one entry for each."""

    def __init__(self, dictionaries: Sequence[Dictionary]) -> None:
        self._each = dictionaries
        self.max_context = max((one.max_context for one in dictionaries), default=0)

    def advance(self, states: Sequence[State], token: int) -> list[State]:
        """The states after one more token id."""
        return [one.advance(state, token) for one, state in zip(self._each, states, strict=True)]

    def look_up(self, states: Sequence[State]) -> Match | None:
        """The most probable next token, the last of equal ones."""
        found = [one.look_up(state) for one, state in zip(reversed(self._each), reversed(states), strict=True)]
        return max(filter(None, found), key=lambda match: match.probability, default=None)
