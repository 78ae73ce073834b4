"""How much is measured in the time that there is, on a clock that only passes move."""

from typing import Any

import pytest

from spectool.runtime.policy import measuring
from spectool.runtime.policy.measuring import ROWS, time_passes


def fake_passes(
    monkeypatch: pytest.MonkeyPatch, base: float, slope: float, first: float = 0.0
) -> tuple[list[float], list[int]]:
    """Let the ``first`` pass of a size take so much longer; return the clock, and the sizes that are timed."""
    clock, ran, seen = [0.0], list[int](), set[int]()

    class Passes:
        def __init__(self, model: Any, depth: int) -> None:
            self.run(1)
            self.run(1)
            del ran[-2:]

        def run(self, rows: int) -> float:
            cost = base * (1 + slope * (rows - 1)) + (0.0 if rows in seen else first)
            seen.add(rows)
            ran.append(rows)
            clock[0] += cost
            return cost

        def run_plain(self) -> float:
            clock[0] += 3 * base
            return base

    monkeypatch.setattr(measuring, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(measuring, "Passes", Passes)
    return clock, ran


@pytest.mark.parametrize("slope", [0.04, 0.5])
@pytest.mark.parametrize("base", [0.01, 0.1, 0.27])
@pytest.mark.parametrize("seconds", [4.0, 7.5, 22.5])
def test_the_time_is_kept_and_a_pass_is_measured_twice(
    seconds: float, base: float, slope: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, ran = fake_passes(monkeypatch, base, slope)
    found, plain, _ = time_passes(None, lambda each: seconds)
    assert 0.75 * seconds < clock[0] < 1.02 * seconds
    assert found.keys() == plain.keys() and {1, 2} <= found[64].keys() <= set(ROWS)
    for depth in found.values():
        assert all(cost == pytest.approx(base * (1 + slope * (rows - 1))) for rows, cost in depth.items())
    assert all(ran.count(rows) >= 2 for rows in found[64])
    if base <= 0.1 and slope < 0.1 and seconds > 5:
        assert {1, 2, 3, 4, 8, 17} <= found[64].keys(), "a curve up to sixteen draft tokens"


def test_what_the_first_pass_of_a_size_takes_longer_leaves_time_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may read weights, or compile kernels: a second of that once left a curve of two points."""
    fake_passes(monkeypatch, 0.02, 0.1, first=1.0)
    cold, _, apart = time_passes(None, lambda each: 40 * each)
    fake_passes(monkeypatch, 0.02, 0.1)
    warm, _, steady = time_passes(None, lambda each: 40 * each)
    assert {64, 1024} == cold.keys() and {1, 2, 4, 8, 17} <= cold[64].keys() and {1, 2} <= cold[1024].keys()
    assert all(time == pytest.approx(warm[64][rows]) for rows, time in cold[64].items())
    assert steady == pytest.approx(1.0), "nothing disturbed it"
    assert apart > 10, "a size that was timed twice, once while its kernel was compiled"
