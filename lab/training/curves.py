"""Rows of a training as Parquet tables, such as its curve."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from spectool.artifacts.atomic import renaming

CURVE = "curve.parquet"
NamedRow = TypeVar("NamedRow", bound=tuple[Any, ...])
_TYPES: dict[Any, Any] = {
    int: pa.int64(),
    str: pa.string(),
    NDArray[np.int32]: pa.list_(pa.int32()),
}


class Point(NamedTuple):
    """One step of a curve."""

    step: int  # from 1
    tokens: int  # learned since the start
    seconds: float  # since the start
    loss: float  # of the text of the step, nats per token
    bits_per_byte: float | None  # of held-out text; None where it was not measured


def write_table(path: Path, kind: type[Any], rows: Iterable[Any]) -> None:
    """Write named tuples of one kind as a Parquet table, atomically."""
    schema = pa.schema([(name, _TYPES.get(type_, pa.float64())) for name, type_ in kind.__annotations__.items()])
    table = pa.Table.from_pylist([row._asdict() for row in rows], schema)
    with renaming(path) as partial:
        pq.write_table(table, partial, compression="zstd")


def read_table(path: Path, kind: type[NamedRow]) -> list[NamedRow]:
    """The rows that `write_table` wrote; arrays come back as lists."""
    return [kind(**row) for row in pq.read_table(path, memory_map=False, partitioning=None).to_pylist()]
