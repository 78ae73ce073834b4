"""Rows depend on the seed and the step alone, and use the text up before they repeat it."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spectool import CorpusError
from spectool.lab.training.options import TrainOptions
from spectool.lab.training.text import Feed


def feed(tokens: int, steps: int, step_tokens: int = 64, length: int = 16, seed: int = 0) -> Feed:
    return Feed(np.arange(tokens, dtype=np.int32), options(steps, step_tokens, length, seed))


def options(steps: int, step_tokens: int, length: int, seed: int) -> TrainOptions:
    return TrainOptions(shape={}, rate=0.01, steps=steps, step_tokens=step_tokens, length=length, seed=seed)


def test_rows_are_stretches_of_the_text_in_two_lengths() -> None:
    rows = [feed(2000, 9).rows(step) for step in range(9)]
    assert [row.shape for row in rows] == [(8, 9)] * 6 + [(4, 17)] * 3
    for row in rows:
        assert np.array_equal(np.diff(row, axis=1), np.ones((len(row), row.shape[1] - 1)))


def test_a_step_is_the_same_in_any_order() -> None:
    forward, backward = feed(3000, 90, seed=5), feed(3000, 90, seed=5)
    there = [forward.rows(step) for step in range(90)]
    back = [backward.rows(step) for step in reversed(range(90))][::-1]
    assert all(np.array_equal(one, two) for one, two in zip(there, back, strict=True))
    assert not np.array_equal(there[0], feed(3000, 90, seed=6).rows(0))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 4), st.sampled_from([2, 8, 16]), st.integers(0, 99))
def test_a_text_of_the_tokens_needed_is_never_seen_twice(steps: int, rows: int, length: int, seed: int) -> None:
    step_tokens = rows * length
    laid = feed(options(steps, step_tokens, length, seed).text_tokens, steps, step_tokens, length, seed)
    seen = Counter(token for step in range(steps) for token in laid.rows(step)[:, 1:].reshape(-1).tolist())
    assert sum(seen.values()) == steps * step_tokens
    assert max(seen.values()) == 1


def test_a_short_text_is_gone_through_again_in_another_order() -> None:
    laid = feed(3 * (64 + 2 * 16), 60)
    rows = [laid.rows(step) for step in range(40)]
    times = Counter(token for row in rows for token in row[:, 1:].reshape(-1).tolist())
    assert sum(count > 5 for count in times.values()) > 0.9 * 192, "all but its very ends"
    assert not np.array_equal(rows[0], rows[2])


def test_a_text_too_short_for_a_step_is_an_error() -> None:
    with pytest.raises(CorpusError, match=r"60 tokens: expected 288 and more for steps of 64\. Give more text"):
        feed(60, 3)
