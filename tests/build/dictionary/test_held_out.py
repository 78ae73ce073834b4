"""Passes over held-out text: all at once as one token after the other."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spectool.build.dictionary.backoff import Predictions
from spectool.build.dictionary.held_out import HeldOutText, Predicted, passes


class Given(HeldOutText):
    """A text of which it is known what is predicted right."""

    def __init__(self, symbols: list[int], right: list[bool]) -> None:
        self.symbols = np.array(symbols, dtype=np.int64)
        self.tokens = int(np.count_nonzero(self.symbols))
        self._right = np.array(right, dtype=np.bool_)

    def predicted(self, chosen: Sequence[Predictions]) -> Predicted:
        nothing = np.zeros(len(self.symbols))
        return Predicted(self._right, self._right, *(nothing.astype(t) for t in (np.float32, np.int8, np.int64)))


def slow_passes(symbols: list[int], right: list[bool], limit: int) -> int:
    """The twin: a pass accepts right tokens up to the limit, and commits one more within the document."""
    made = at = 0
    while at < len(symbols):
        if symbols[at]:
            made += 1
            end = at + limit
            while at < min(end, len(symbols)) and right[at]:
                at += 1
            at += at < len(symbols) and symbols[at] > 0
        else:
            at += 1
    return made


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40), st.integers(1, 6))
def test_equal_to_the_slow_twin(text: list[tuple[int, bool]], limit: int) -> None:
    symbols = [symbol for symbol, _ in text]
    right = [symbol > 0 and guess for symbol, guess in text]
    made = slow_passes(symbols, right, limit)
    found = Given(symbols, right).tokens_per_pass([], limit)
    assert found == (sum(symbol > 0 for symbol in symbols) / made if made else 1.0)


def test_passes_by_hand() -> None:
    assert passes(np.array([2, 2, 3, 6, 5, 6])) == [0, 2, 3]
    assert passes(np.zeros(0, dtype=np.int64)) == []
