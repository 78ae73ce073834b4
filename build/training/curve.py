"""Tables that grow with a training: a row for each step or measurement, in a Parquet file.

    curve.parquet    step, tokens, seconds, loss, bits_per_byte

``step`` counts from 1, ``tokens`` and ``seconds`` from the beginning of the run; ``loss`` is of the
step's own text, nats per token; ``bits_per_byte`` is of held-out text, null where it was not measured.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spectool.artifacts.replacing import renaming

CURVE = "curve.parquet"
_TYPES = {int: pa.int64(), str: pa.string()}
Row = TypeVar("Row", bound=tuple[Any, ...])


class Point(NamedTuple):
    """One step of a curve; see the module for the units."""

    step: int
    tokens: int
    seconds: float
    loss: float
    bits_per_byte: float | None


def write_rows(path: Path, kind: type[Row], rows: Iterable[Row]) -> None:
    """Write named tuples of a kind as a table, in one step."""
    names = kind.__annotations__
    schema = pa.schema([(name, _TYPES.get(kind_of, pa.float64())) for name, kind_of in names.items()])
    with renaming(path) as partial:
        pq.write_table(
            pa.Table.from_pylist([dict(zip(names, r, strict=True)) for r in rows], schema), partial, compression="zstd"
        )


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """Read what `write_rows` wrote."""
    return [kind(**row) for row in pq.read_table(path, memory_map=False, partitioning=None).to_pylist()]


def means(points: Sequence[Point], most: int) -> list[tuple[float, float]]:
    """Return step and loss, each the mean of a stretch of steps, for at most ``most`` stretches of one length."""
    stretches = np.array_split(np.array([(p.step, p.loss) for p in points]), min(most, len(points)))
    return [(float(step), float(loss)) for step, loss in (stretch.mean(axis=0) for stretch in stretches)]
