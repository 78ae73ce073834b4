"""Drafts that cost no model: from a dictionary, from the request's own history, or from both.

A proposal is a chain. At each step the dictionary knows a token for the longest known suffix of the text so far, and
the history knows the token that followed the last time. The more probable of the two is appended, and the next step
begins after it. Taking the more probable token at every step makes the expected accepted length of the chain long.

Source: DictSpec, section 3.3 (longest matching suffix); prompt lookup decoding (Saxena, 2023).
"""

from collections.abc import Sequence

from spectool.artifacts.dictionary import START, Dictionary, Step
from spectool.runtime.decoding.drafter import Drafter, Proposal
from spectool.runtime.draft_length.acceptance import Acceptance
from spectool.runtime.drafters.history import History, Repeat

_SHORTEST = 2  # tokens of history that must repeat: after one, a dictionary is nearly always the better guess
_DICTIONARY_DISCOUNT = 0.6  # of its probabilities where there is a history: other text is less predictable than counted
_LONGEST = 24  # repeats of more tokens are as good as these
_PRIOR = 10.0  # observations that the prior counts for
_DICTIONARY, _HISTORY = 1, 2  # where a token is from, as bits
_NAMES = {_DICTIONARY: "dictionary", _HISTORY: "history", _DICTIONARY | _HISTORY: "dictionary+history"}


class LookupDrafter(Drafter):
    """Drafts from a dictionary, the request's own history, or both; never from a model.

    How reliable the history is, is learnt from the request itself. A repeat of ``m`` tokens goes on as before with
    probability ``m / (m + 3)`` at first, later as often as it did.
    """

    def __init__(
        self, dictionary: Dictionary | None = None, history: bool = False, min_probability: float = 0.0
    ) -> None:
        """Draft from what is given.

        Args:
            dictionary: Open dictionary of the target's tokenizer.
            history: Draft from what the request has said before.
            min_probability: End a proposal before its probability falls below this, 0..1. Higher values draft less and
                are right more often.

        Raises:
            ValueError: There is nothing to draft from.
        """
        if dictionary is None and not history:
            raise ValueError("a lookup drafter needs a dictionary, the history, or both; got neither")
        self.name = "+".join(["dictionary"] * (dictionary is not None) + ["history"] * history)
        self._min_probability = min_probability
        self._step = dictionary.step if dictionary else lambda state: None
        self._advance = dictionary.advance if dictionary else lambda state, token: state
        self._max_context = dictionary.max_context if dictionary else 0
        self._chained = dictionary.chained if dictionary else False
        self._with_history = history
        self._shortest = _SHORTEST if dictionary else 1
        self.start(())

    def start(self, prompt: Sequence[int]) -> None:
        """Begin after ``prompt`` (token ids); forget everything else."""
        self._state = START
        self._history = History()
        self._repeat = self._history.repeat  # as far as it is usable
        self._acceptance = [Acceptance(m / (m + 3), _PRIOR) for m in range(_LONGEST + 1)]
        if prompt:
            self._remember(prompt)

    def propose(self, limit: int) -> Proposal:
        """A chain of at most ``limit`` tokens; some microseconds."""
        return self._chain(self._state, self._repeat, (), limit)

    def extend(self, tokens: Sequence[int], limit: int) -> Proposal:
        """What follows ``tokens``, which another drafter has guessed; at most ``limit`` tokens more."""
        state = self._state
        for token in tokens:
            state = self._advance(state, token)
        return self._chain(state, self._usable(self._history.repeat_after(tokens)), tokens, limit)

    def commit(self, tokens: Sequence[int]) -> None:
        """Add committed tokens, and learn how well the history predicted them."""
        place, length = self._repeat
        for token in tokens:
            if not length:
                break
            self._acceptance[length].asked += 1
            if self._copied(place, tokens) != token:
                break
            self._acceptance[length].right += 1
            place, length = place + 1, min(length + 1, _LONGEST)
        self._remember(tokens)

    def _chain(self, state: bytes, repeat: Repeat, begun: Sequence[int], limit: int) -> Proposal:
        """A chain of guesses after the history and ``begun``."""
        place, length = repeat
        first = len(begun)
        tokens = list(begun)
        probabilities: list[float] = []
        probability = 1.0
        asks, sources = True, 0
        while len(probabilities) < limit:
            found = self._step(state) if asks else None
            rate = self._acceptance[length].rate if length else 0.0
            if found is not None and (not length or _DICTIONARY_DISCOUNT * _for_each(found) >= rate):
                following, stated, state = found
                each = stated if len(following) == 1 else _for_each(found)
                asks, source = self._chained, _DICTIONARY
            elif length:
                token = self._copied(place, tokens)
                following, stated, state = (token,), rate, self._advance(state, token)
                each, source = rate, _HISTORY
            else:
                break
            probability *= stated
            if probability < self._min_probability:
                break
            tokens += following
            probabilities += (each,) * len(following)
            sources |= source
            for token in following if length else ():  # the history is no guide where it went on otherwise
                if token != self._copied(place, tokens):
                    length = 0
                    break
                place, length = place + 1, min(length + 1, _LONGEST)
        name = _NAMES.get(sources, self.name)
        return Proposal(tuple(tokens[first : first + limit]), name, tuple(probabilities[:limit]))

    def _copied(self, place: int, tokens: Sequence[int]) -> int:
        """The token at ``place`` of the history followed by ``tokens``."""
        history = self._history.tokens
        return history[place] if place < len(history) else tokens[place - len(history)]

    def _remember(self, tokens: Sequence[int]) -> None:
        for token in tokens[-self._max_context :] if self._max_context else ():
            self._state = self._advance(self._state, token)
        if self._with_history:
            for token in tokens:
                self._history.append(int(token))
            self._repeat = self._usable(self._history.repeat)

    def _usable(self, repeat: Repeat) -> Repeat:
        """``repeat`` with length 0 where it is too short to go on with."""
        return Repeat(repeat.follower, min(repeat.length, _LONGEST) if repeat.length >= self._shortest else 0)


def _for_each(step: Step) -> float:
    """The probability of one token of a continuation."""
    each: float = step[1] ** (1 / len(step[0]))
    return each
