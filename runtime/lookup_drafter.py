"""Drafts that cost no model: from a dictionary, from the request's own history, or from both.

A proposal is a chain. At each step the dictionary knows a token for the longest known suffix of
what was said so far, and the history the token that followed the last time; the more probable of
the two is appended, and the next step begins after it. Taking the more probable token at every
step is what makes the expected accepted length of the chain long, whichever source it is from.

Source: DictSpec, section 3.3 (longest matching suffix); prompt lookup decoding (Saxena, 2023).
"""

from collections.abc import Sequence
from functools import lru_cache

from spectool.artifacts.dictionary import UNKNOWN_SYMBOL, Dictionary, Match
from spectool.runtime.drafter import Proposal
from spectool.runtime.history import History, Repeat

_REMEMBERED = 1 << 14  # look-ups; chains come back to the same phrases
_SHORTEST = 2  # tokens of history that must repeat: after one, a dictionary is nearly always the better guess
_CREDIT = 0.6  # of a stated probability, beside the history: other text than the counted one is less predictable
_LONGEST = 24  # repeats of more tokens are as good as these
_PRIOR = 10.0  # observations that the prior is worth


class LookupDrafter:
    """Drafts from a dictionary, the request's own history, or both; never from a model.

    How far history is to be trusted is learnt from the request itself: a repeat of ``m`` tokens
    goes on as before with probability ``m / (m + 3)`` at first, then as often as it turned out to.
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
        self._symbols = dictionary.symbols if dictionary else {}
        self._max_context = dictionary.max_context if dictionary else 0
        self._chained = dictionary.chained if dictionary else False
        self._look_up = lru_cache(_REMEMBERED)(dictionary.longest_suffix if dictionary else _nothing)
        self._with_history = history
        self._shortest = _SHORTEST if dictionary else 1
        self.start(())

    def start(self, prompt: Sequence[int]) -> None:
        """Begin after ``prompt`` (token ids); forget everything else."""
        self._newest_first = ""
        self._history = History()
        self._right = [0.0, *(_PRIOR * m / (m + 3) for m in range(1, _LONGEST + 1))]
        self._asked = [_PRIOR] * (_LONGEST + 1)
        if prompt:
            self._remember(prompt)

    def propose(self, limit: int) -> Proposal:
        """Propose a chain of at most ``limit`` tokens; some microseconds."""
        look_up, most, chained, floor = self._look_up, self._max_context, self._chained, self._min_probability
        symbols, (place, length) = self._newest_first, self._repeat()
        said = self._history.tokens
        tokens: list[int] = []
        sources: set[str] = set()
        probability = 1.0
        asks = most > 0
        while len(tokens) < limit:
            match = look_up(symbols) if asks else None
            copied, trust = -1, 0.0
            if length:
                copied = said[place] if place < len(said) else tokens[place - len(said)]
                trust = self._right[length] / self._asked[length]
            if match is not None and _credit(match) >= trust:
                probability *= match.probability
                step, newest_first = match.tokens, match.newest_first
                asks = chained
                source = "dictionary"
            elif length:
                probability *= trust
                step, newest_first = (copied,), self._symbols.get(copied, UNKNOWN_SYMBOL)
                source = "history"
            else:
                break
            if probability < floor:
                break
            sources.add(source)
            tokens += step
            symbols = (newest_first + symbols)[:most]
            for token in step:  # does the history still say the same?
                if not length:
                    break
                copied = said[place] if place < len(said) else tokens[place - len(said)]
                place, length = place + 1, min(length + 1, _LONGEST) if token == copied else 0
        return Proposal(tuple(tokens[:limit]), "+".join(sorted(sources)) or self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        """Add committed tokens, and learn how well the history foretold them."""
        place, length = self._repeat()
        said = self._history.tokens
        for token in tokens:
            if not length:
                break
            copied = said[place] if place < len(said) else tokens[place - len(said)]
            self._asked[length] += 1
            if copied != token:
                break
            self._right[length] += 1
            place, length = place + 1, min(length + 1, _LONGEST)
        self._remember(tokens)

    def _remember(self, tokens: Sequence[int]) -> None:
        symbols = self._symbols
        recent = reversed(tokens[-self._max_context :]) if self._max_context else ()
        newest_first = "".join(symbols.get(token, UNKNOWN_SYMBOL) for token in recent)
        self._newest_first = (newest_first + self._newest_first)[: self._max_context]
        if self._with_history:
            for token in tokens:
                self._history.append(int(token))

    def _repeat(self) -> Repeat:
        """Return what the history knows to go on with; a length of 0 where it is nothing to trust."""
        place, length = self._history.repeat
        return Repeat(place, min(length, _LONGEST) if length >= self._shortest else 0)


def _credit(match: Match) -> float:
    """Return the probability of one token of a continuation, comparable with what the history promises."""
    count = len(match.tokens)
    return _CREDIT * (match.probability if count == 1 else match.probability ** (1 / count))


def _nothing(history: str) -> None:
    """Look nothing up."""
