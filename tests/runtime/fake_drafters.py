"""Drafters that know too much, too little, or fail, to put every kind of proposal before the loop."""

import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spectool.runtime.drafters.drafter import Drafter, Proposal
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.tests.build.dictionaries import written


def dictionary_of(text: Sequence[int], *, vocabulary: int = 256, seed: int = 0) -> LookupDrafter:
    """Return a real dictionary that knows every second window of ``text``, and as many wrong ones."""
    rng = random.Random(seed)
    windows = [list(text[start : start + 7]) for start in range(0, max(1, len(text) - 7), 2)]
    wrong = [[*window[:3], *(rng.randrange(vocabulary) for _ in window[3:])] for window in windows[1::2]]
    following = defaultdict[tuple[int, ...], Counter[int]](Counter)
    for window in windows + wrong:
        for cut in range(1, len(window)):
            following[tuple(window[:cut])][window[cut]] += 1
    entries = [
        (context, token, times / counts.total())
        for context, counts in following.items()
        for token, times in counts.most_common(1)
    ]
    # The file is mapped when the folder goes: its pages live as long as the dictionary.
    with tempfile.TemporaryDirectory() as folder:
        target = {"name": "test", "fingerprint": "", "size": vocabulary}
        return LookupDrafter(written(Path(folder) / "x.dict", entries, target))


class Reference(Drafter):
    """Knows the whole text; with ``wrong`` > 0 each proposed token is spoilt with that probability."""

    name = "oracle"

    def __init__(self, text: Sequence[int], *, wrong: float = 0.0, vocabulary: int = 256, seed: int = 0) -> None:
        self._text = list(text)
        self._wrong = wrong
        self._vocabulary = vocabulary
        self._rng = random.Random(seed)
        self.started: list[int] = []
        self.committed: list[int] = []
        self.limits: list[int] = []

    def start(self, prompt: Sequence[int]) -> None:
        self.started = list(prompt)
        self.committed = []

    def propose(self, limit: int) -> Proposal:
        self.limits.append(limit)
        now = len(self.committed)
        return Proposal([self._maybe_spoil(token) for token in self._text[now : now + limit]], self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        self.committed += tokens

    def _maybe_spoil(self, token: int) -> int:
        return (token + 1) % self._vocabulary if self._rng.random() < self._wrong else token


class Guesser(Drafter):
    """Random tokens, a random number of them."""

    name = "guesser"

    def __init__(self, *, vocabulary: int = 256, seed: int = 0) -> None:
        self._rng = random.Random(seed)
        self._vocabulary = vocabulary

    def propose(self, limit: int) -> Proposal:
        count = self._rng.randint(0, limit)
        return Proposal([self._rng.randrange(self._vocabulary) for _ in range(count)], self.name)


class Fixed(Drafter):
    """Always the same proposal, regardless of the limit."""

    name = "fixed"

    def __init__(self, tokens: Sequence[int], name: str = "fixed") -> None:
        self._tokens = tokens
        self.name = name

    def propose(self, limit: int) -> Proposal:
        return Proposal(self._tokens, self.name)


class Failing(Reference):
    """An oracle that raises ``error`` at the n-th call of one method."""

    name = "failing"

    def __init__(self, text: Sequence[int], method: str, call: int = 1, error: BaseException | None = None) -> None:
        super().__init__(text)
        self.calls, act = 0, getattr(self, method)

        def failing(argument: Any) -> Any:
            self.calls += 1
            if self.calls == call:
                raise error or OSError("disk gone")
            return act(argument)

        setattr(self, method, failing)
