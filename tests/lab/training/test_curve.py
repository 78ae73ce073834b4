"""The loss curve: kept to the bit, and the learning rate."""

import math
from pathlib import Path

import mlx.core as mx
import pyarrow.parquet as pq
import pytest

from spectool.lab.training.run import Point, rate_schedule, read_table, write_table

POINTS = [Point(n, 10 * n, 0.1 * n, 9 / n, 1 / n if n % 50 == 0 else None) for n in range(1, 201)]


def test_a_curve_is_kept_to_the_bit(tmp_path: Path) -> None:
    write_table(tmp_path / "curve.parquet", Point, POINTS)
    assert read_table(tmp_path / "curve.parquet", Point) == POINTS
    assert pq.read_schema(tmp_path / "curve.parquet").names == ["step", "tokens", "seconds", "loss", "bits_per_byte"]
    assert [path.name for path in tmp_path.iterdir()] == ["curve.parquet"]


def test_the_rate_rises_and_falls() -> None:
    rates = [rate_schedule(1000, 2.0)(mx.array(step)).item() for step in range(1000)]
    top = rates.index(max(rates))
    assert max(rates) == pytest.approx(2.0) and 25 <= top <= 35
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 0.04 <= rates[-1] < 0.041
    assert rates[0] > 0
    for step, rate in enumerate(rates):
        rising, fall = (step + 1) / 30, 0.5 * (1 + math.cos(math.pi * (step - 30) / 970))
        assert rate == pytest.approx(2.0 * (rising if step < 30 else 0.02 + 0.98 * fall), rel=1e-5)
    assert rate_schedule(1, 2.0)(mx.array(0)).item() == 2.0
