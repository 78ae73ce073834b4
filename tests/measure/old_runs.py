"""Benchmark files as earlier versions wrote them."""

from pathlib import Path

import pyarrow.parquet as pq

_ADDED = {"temperature": 2, "first_token_seconds": 3}  # the version that first had a column


def as_version(directory: Path, version: int) -> None:
    """Rewrite the files of a run in ``directory`` as ``version`` had them."""
    for name in ("generations.parquet", "cycles.parquet"):
        table = pq.read_table(directory / name)
        later = [column for column, first in _ADDED.items() if first > version and column in table.column_names]
        old = table.drop_columns(later).replace_schema_metadata({"spectool-benchmark": str(version)})
        pq.write_table(old, directory / name)
