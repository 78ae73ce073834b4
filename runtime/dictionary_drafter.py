"""A dictionary as a drafter: proposes the continuation of the longest known suffix."""

from collections.abc import Sequence

from spectool.artifacts.dictionary import UNKNOWN_SYMBOL, Dictionary
from spectool.runtime.drafter import Proposal


class DictionaryDrafter:
    """Drafts from an open dictionary; keeps the newest tokens as symbols, newest first.

    Source: DictSpec, section 3.3 (longest matching suffix, backing off to shorter contexts).
    """

    def __init__(self, dictionary: Dictionary, name: str = "dictionary") -> None:
        """Draft from ``dictionary``; ``name`` is for statistics."""
        self.name = name
        self._dictionary = dictionary
        self._history = ""

    def start(self, prompt: Sequence[int]) -> None:
        """Begin after ``prompt``; only its last tokens matter."""
        self._history = ""
        if prompt:
            self.commit(prompt[-self._dictionary.max_context :])

    def propose(self, limit: int) -> Proposal:
        """Propose the continuation of the longest known suffix, at most ``limit`` tokens; 1-3 µs."""
        match = self._dictionary.longest_suffix(self._history)
        if match is None:
            return Proposal((), self.name)
        return Proposal(match.tokens[:limit], self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        """Add committed tokens to the history."""
        symbols = self._dictionary.symbols
        newest_first = "".join(symbols.get(token, UNKNOWN_SYMBOL) for token in reversed(tokens))
        self._history = (newest_first + self._history)[: self._dictionary.max_context]
