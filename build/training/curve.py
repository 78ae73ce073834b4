"""The loss curve of a run: a row for each step, in a Parquet file.

    curve.parquet    step, tokens, seconds, loss, bits_per_byte

``step`` counts from 1, ``tokens`` and ``seconds`` from the beginning of the run; ``loss`` is of the
step's own text, nats per token; ``bits_per_byte`` is of held-out text, null where it was not measured.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spectool.artifacts.replacing import renaming

CURVE = "curve.parquet"
_SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("tokens", pa.int64()),
        ("seconds", pa.float64()),
        ("loss", pa.float64()),
        ("bits_per_byte", pa.float64()),
    ]
)


class Point(NamedTuple):
    """One step of a curve; see the module for the units."""

    step: int
    tokens: int
    seconds: float
    loss: float
    bits_per_byte: float | None


def write_curve(path: Path, points: Sequence[Point]) -> None:
    """Write a curve in one step."""
    with renaming(path) as partial:
        pq.write_table(pa.Table.from_pylist([p._asdict() for p in points], _SCHEMA), partial, compression="zstd")


def read_curve(path: Path) -> list[Point]:
    """Read what `write_curve` wrote."""
    return [Point(**row) for row in pq.read_table(path, memory_map=False, partitioning=None).to_pylist()]


def means(points: Sequence[Point], most: int) -> list[tuple[float, float]]:
    """Return step and loss, each the mean of a stretch of steps, for at most ``most`` stretches of one length."""
    stretches = np.array_split(np.array([(p.step, p.loss) for p in points]), min(most, len(points)))
    return [(float(step), float(loss)) for step, loss in (stretch.mean(axis=0) for stretch in stretches)]
