"""How much is measured in the time that there is, on a clock that only passes move."""

from typing import Any

import pytest

from spectool.runtime.policy import measuring
from spectool.runtime.policy.measuring import ROWS, time_passes


@pytest.mark.parametrize("slope", [0.04, 0.5])
@pytest.mark.parametrize("base", [0.01, 0.1, 0.27])
@pytest.mark.parametrize("seconds", [4.0, 7.5, 22.5])
def test_the_time_is_kept_and_a_pass_is_measured_twice(
    seconds: float, base: float, slope: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, ran = [0.0], list[int]()

    class Passes:
        def __init__(self, model: Any, depth: int) -> None:
            clock[0] += 2 * base

        def run(self, rows: int) -> float:
            ran.append(rows)
            cost = base * (1 + slope * (rows - 1))
            clock[0] += cost
            return cost

        def run_plain(self) -> float:
            clock[0] += 3 * base
            return base

    monkeypatch.setattr(measuring, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(measuring, "Passes", Passes)
    found, plain = time_passes(None, lambda each: seconds)
    assert 0.75 * seconds < clock[0] < 1.02 * seconds
    assert found.keys() == plain.keys() and {1, 2} <= found[64].keys() <= set(ROWS)
    for depth in found.values():
        assert all(cost == pytest.approx(base * (1 + slope * (rows - 1))) for rows, cost in depth.items())
    assert all(ran.count(rows) >= 2 for rows in found[64])
    if base <= 0.1 and slope < 0.1 and seconds > 5:
        assert {1, 2, 3, 4, 8, 17} <= found[64].keys(), "a curve up to sixteen draft tokens"
