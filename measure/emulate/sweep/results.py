"""The format of measured runs: one Parquet file, a row for each dictionary or drafter that was replayed.

    runs.parquet     one row group; columns as in `SCHEMA`, rows in the order of `KEY`

A setting that a method does not have is null. Rows are told apart by their settings and by what
they were measured on (`KEY`); everything else is a result.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from spectool import ArtifactError
from spectool.artifacts.replacing import renaming

RUNS = "runs.parquet"
VERSION = "1"
Row: TypeAlias = dict[str, Any]

_SETTINGS = {
    "language": pa.string(),  # as the grid names it
    "tokenizer": pa.string(),  # likewise
    "method": pa.string(),
    "reading": pa.string(),
    "order": pa.string(),
    "entries_asked": pa.int64(),
    "max_bytes": pa.int64(),
    "min_prob": pa.float64(),
    "num_draft_tokens": pa.int64(),
}
_MEASURED_ON = {
    "fingerprint": pa.string(),  # of the tokenizer
    "build_corpus": pa.string(),
    "build_bytes": pa.int64(),  # on disk
    "replay_corpus": pa.string(),
    "replay_bytes": pa.int64(),
    "replay_limit": pa.int64(),  # tokens asked for, 0 for all
    "script": pa.string(),  # of the lines that were kept
    "split_as": pa.string(),  # language code for splitting words
}
_RESULTS = {
    "build_words": pa.int64(),
    "replay_words": pa.int64(),  # between white space
    "tokens": pa.int64(),
    "fertility": pa.float64(),
    "entries": pa.int64(),  # stored
    "file_bytes": pa.int64(),  # null where no file was written
    "passes": pa.int64(),
    "drafted_passes": pa.int64(),
    "proposed": pa.int64(),
    "accepted": pa.int64(),
    "tokens_per_pass": pa.float64(),
    "acceptance": pa.float64(),
    "mean_accepted_length": pa.float64(),
    "coverage": pa.float64(),
    "seconds": pa.float64(),  # with its share of what several runs have in common
}
SCHEMA = pa.schema(list({**_SETTINGS, **_MEASURED_ON, **_RESULTS}.items()), {"spectool-runs": VERSION})
KEY = (*_SETTINGS, *_MEASURED_ON)


def key(row: Row) -> tuple[Any, ...]:
    """Return what tells a run apart from all others."""
    return tuple(row[name] for name in KEY)


def write_runs(path: Path, rows: Iterable[Row]) -> None:
    """Write runs under a temporary name and rename: ``path`` is absent, the old file, or the whole new one."""
    ordered = sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in KEY])
    with renaming(path) as partial:
        pq.write_table(pa.Table.from_pylist(ordered, SCHEMA), partial, compression="zstd")


def read_runs(path: Path) -> list[Row]:
    """Read a file of runs.

    Raises:
        ArtifactError: It is no such file, of another version, or damaged.
    """
    again = "Move it away, and measure again with the sweep that wrote it"
    try:
        table = pq.read_table(path, memory_map=False, partitioning=None)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path}: not a readable Parquet file ({_first_line(error)}). {again}") from error
    version = (table.schema.metadata or {}).get(b"spectool-runs", b"").decode(errors="replace")
    if version != VERSION:
        found = f"runs of version {version!r}" if version else "not a file of runs"
        raise ArtifactError(f"{path}: {found}, expected version {VERSION}. {again}")
    if not table.schema.equals(SCHEMA):
        raise ArtifactError(f"{path}: columns {table.schema.names}, expected {SCHEMA.names}. {again}")
    rows: list[Row] = table.to_pylist()
    return rows


def merged(parts: Iterable[Sequence[Row]]) -> list[Row]:
    """Join runs; of equal ones the first counts."""
    found: dict[tuple[Any, ...], Row] = {}
    for part in parts:
        for row in part:
            found.setdefault(key(row), row)
    return list(found.values())


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
