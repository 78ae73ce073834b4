"""Drafts that cost no model: from a dictionary, from the request's own history, or from both.

A proposal is a chain. At each step the dictionary knows a token for the longest known suffix of what was said so far.
The history knows the token that followed the last time. The more probable of the two is appended, and the next step
begins after it. Taking the more probable token at every step is what makes the expected accepted length of the chain
long, whichever source it is from.

Source: DictSpec, section 3.3 (longest matching suffix); prompt lookup decoding (Saxena, 2023).
"""

from collections.abc import Sequence

from spectool.artifacts.dictionary import START, Dictionary, Step
from spectool.runtime.decoding.drafter import Drafter, Proposal
from spectool.runtime.drafters.acceptance import Acceptance
from spectool.runtime.drafters.history import History, Repeat

_SHORTEST = 2  # tokens of history that must repeat: after one, a dictionary is nearly always the better guess
_CREDIT = 0.6  # of a stated probability, beside the history: other text than the counted one is less predictable
_LONGEST = 24  # repeats of more tokens are as good as these
_PRIOR = 10.0  # observations that the prior counts for
_DICTIONARY, _HISTORY = 1, 2  # where a token is from, as bits
_SOURCES = {_DICTIONARY: "dictionary", _HISTORY: "history", _DICTIONARY | _HISTORY: "dictionary+history"}


class LookupDrafter(Drafter):
    """Drafts from a dictionary, the request's own history, or both; never from a model.

    How far history is to be trusted is learnt from the request itself. A repeat of ``m`` tokens goes on as before with
    probability ``m / (m + 3)`` at first, later as often as it did.
    """

    def __init__(
        self, dictionary: Dictionary | None = None, history: bool = False, min_probability: float = 0.0
    ) -> None:
        """Draft from what is given.

        Args:
            dictionary: Open dictionary of the target's tokenizer.
            history: Draft from what the request has said before.
            min_probability: End a proposal before its probability falls below this, 0..1. Higher values
                draft less and are right more often.

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
        self._repeat = self._history.repeat  # what of it is long enough to go on with
        self._acceptance = [Acceptance(m / (m + 3), _PRIOR) for m in range(_LONGEST + 1)]
        if prompt:
            self._remember(prompt)

    def propose(self, limit: int) -> Proposal:
        """Propose a chain of at most ``limit`` tokens; some microseconds."""
        return self._chain(self._state, self._repeat, (), limit)

    def extend(self, tokens: Sequence[int], limit: int) -> Proposal:
        """Propose what follows ``tokens``, which another drafter has guessed; at most ``limit`` tokens more."""
        state = self._state
        for token in tokens:
            state = self._advance(state, token)
        return self._chain(state, self._worth_following(self._history.repeat_after(tokens)), tokens, limit)

    def _chain(self, state: bytes, repeat: Repeat, begun: Sequence[int], limit: int) -> Proposal:
        """Chain guesses after what was said and ``begun``."""
        step, floor, said = self._step, self._min_probability, self._history.tokens
        place, length = repeat
        first = len(begun)
        tokens = list(begun)
        probabilities: list[float] = []
        probability = 1.0
        asks, sources = True, 0
        while len(probabilities) < limit:
            found = step(state) if asks else None
            trust = self._acceptance[length].rate if length else 0.0
            if found is not None and (not length or _CREDIT * _for_each(found) >= trust):
                following, stated, state = found
                each = stated if len(following) == 1 else _for_each(found)
                asks, source = self._chained, _DICTIONARY
            elif length:
                token = said[place] if place < len(said) else tokens[place - len(said)]
                following, stated, state = (token,), trust, self._advance(state, token)
                each, source = trust, _HISTORY
            else:
                break
            probability *= stated
            if probability < floor:
                break
            tokens += following
            probabilities += (each,) * len(following)
            sources |= source
            if length:
                place, length = self._followed(place, length, following, tokens)
        return Proposal(
            tuple(tokens[first : first + limit]), _SOURCES.get(sources, self.name), tuple(probabilities[:limit])
        )

    def _followed(self, place: int, length: int, following: Sequence[int], tokens: Sequence[int]) -> tuple[int, int]:
        """Return where the history goes on after ``following``, and the length of the repeat: 0 where it says else."""
        said = self._history.tokens
        for token in following:
            again = said[place] if place < len(said) else tokens[place - len(said)]
            if token != again:
                return place, 0
            place, length = place + 1, min(length + 1, _LONGEST)
        return place, length

    def commit(self, tokens: Sequence[int]) -> None:
        """Add committed tokens, and learn how well the history foretold them."""
        place, length = self._repeat
        said = self._history.tokens
        for token in tokens:
            if not length:
                break
            copied = said[place] if place < len(said) else tokens[place - len(said)]
            self._acceptance[length].asked += 1
            if copied != token:
                break
            self._acceptance[length].right += 1
            place, length = place + 1, min(length + 1, _LONGEST)
        self._remember(tokens)

    def _remember(self, tokens: Sequence[int]) -> None:
        for token in tokens[-self._max_context :] if self._max_context else ():
            self._state = self._advance(self._state, token)
        if self._with_history:
            for token in tokens:
                self._history.append(int(token))
            self._repeat = self._worth_following(self._history.repeat)

    def _worth_following(self, repeat: Repeat) -> Repeat:
        """Return ``repeat``, its length 0 where it is too short to go on with."""
        return Repeat(repeat.follower, min(repeat.length, _LONGEST) if repeat.length >= self._shortest else 0)


def _for_each(step: Step) -> float:
    """Return the probability of one token of a continuation."""
    each: float = step[1] ** (1 / len(step[0]))
    return each
