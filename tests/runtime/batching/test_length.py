"""The draft length of blocks on simulated machines, whose seconds are exact."""

import random
from collections.abc import Callable

import pytest

from spectool.runtime.batching.length import BlockLength
from spectool.runtime.draft_length.record import StatedAcceptance

# Seconds of a cycle by the places in its block.
CURVES: dict[str, Callable[[int], float]] = {
    "flat": lambda places: 1 + 0.004 * places,
    "linear": float,
    "between": lambda places: 1 + 0.1 * places,
    "steps of 8": lambda places: 1.0 + (places + 7) // 8,
    "another kernel from 16 on": lambda places: 1 + 0.3 * places if places < 16 else 4 + 0.02 * places,
}


def simulate(curve: Callable[[int], float], rows: int, right: float, cycles: int, fixed: int | None = None) -> float:
    """Tokens per second, in the second half, of rows that propose 8 tokens, each right with probability ``right``."""
    rng = random.Random(7)
    length, acceptances = BlockLength(8), [StatedAcceptance(10.0, 0.8) for _ in range(rows)]
    stated = [0.8] * 8
    tokens = seconds = 0.0
    for cycle in range(cycles):
        k = length.choose([each.probabilities(stated) for each in acceptances]) if fixed is None else fixed
        committed = 0
        for acceptance in acceptances:
            accepted = next((at for at in range(k) if rng.random() >= right), k)
            acceptance.learn(stated[:k][: accepted + 1], accepted)
            committed += accepted + 1
        spent = curve(rows * (1 + k))
        length.learn(rows, 1 + k, committed, spent * rng.lognormvariate(0, 0.03))
        if cycle >= cycles // 2 or fixed is not None:
            tokens, seconds = tokens + committed, seconds + spent
    return tokens / seconds


@pytest.mark.parametrize("rows", [3, 8])
@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("right", [0.1, 0.6, 0.9])
def test_it_finds_about_the_best_length(name: str, rows: int, right: float) -> None:
    best = max(simulate(CURVES[name], rows, right, 120, fixed) for fixed in range(9))
    assert simulate(CURVES[name], rows, right, 500) > 0.9 * best


@pytest.mark.parametrize("rows", [2, 8])
def test_what_useless_drafts_cost_is_bounded(rows: int) -> None:
    plain = simulate(float, rows, 0.0, 400, 0)
    assert simulate(float, rows, 0.0, 800) > 0.96 * plain
