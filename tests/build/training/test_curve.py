"""The loss curve: kept to the bit, and smoothed."""

from pathlib import Path

import pyarrow.parquet as pq

from spectool.build.training.curve import Point, means, read_curve, write_curve
from spectool.build.training.steps import rate_at

POINTS = [Point(n, 10 * n, 0.1 * n, 9 / n, 1 / n if n % 50 == 0 else None) for n in range(1, 201)]


def test_a_curve_is_kept_to_the_bit(tmp_path: Path) -> None:
    write_curve(tmp_path / "curve.parquet", POINTS)
    assert read_curve(tmp_path / "curve.parquet") == POINTS
    assert pq.read_schema(tmp_path / "curve.parquet").names == ["step", "tokens", "seconds", "loss", "bits_per_byte"]
    assert [path.name for path in tmp_path.iterdir()] == ["curve.parquet"]


def test_means_of_stretches() -> None:
    assert means(POINTS[:4], 2) == [(1.5, (9 + 4.5) / 2), (3.5, (3 + 2.25) / 2)]
    assert len(means(POINTS, 20)) == 20 and means(POINTS[:1], 20) == [(1.0, 9.0)]


def test_the_rate_rises_and_falls() -> None:
    rates = [rate_at(step, 1000, 2.0) for step in range(1000)]
    top = rates.index(max(rates))
    assert max(rates) == 2.0 and 25 <= top <= 35
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 0.04 <= rates[-1] < 0.041
    assert rates[0] > 0
    assert rate_at(0, 1, 2.0) == 2.0
