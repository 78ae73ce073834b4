"""The format of measured runs: one Parquet file, a row for each dictionary or drafter that was replayed.

    runs.parquet     one row group; columns as in `SCHEMA`, rows in the order of `KEY`

A setting that a method does not have is null. A run is identified by its settings and by what it was measured on
(`KEY`); all other columns are results.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from spectool import ArtifactError
from spectool.artifacts.atomic import atomic_file

RUNS = "runs.parquet"
SweepRow: TypeAlias = dict[str, Any]

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
    "split_as": pa.string(),  # language code for splitting words, in runs of earlier versions
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
SCHEMA = pa.schema({**_SETTINGS, **_MEASURED_ON, **_RESULTS}, {"spectool-runs": "1"})
KEY = (*_SETTINGS, *_MEASURED_ON)


def key(row: SweepRow) -> tuple[Any, ...]:
    """What identifies a run."""
    return tuple(row[name] for name in KEY)


def write_runs(path: Path, rows: Iterable[SweepRow]) -> None:
    """Write runs atomically; of runs with the same key, the first is kept."""
    first = {key(row): row for row in reversed([*rows])}
    ordered = sorted(first.values(), key=lambda row: [(value is not None, value) for value in key(row)])
    with atomic_file(path) as partial:
        pq.write_table(pa.Table.from_pylist(ordered, SCHEMA), partial, compression="zstd")


def read_runs(path: Path) -> list[SweepRow]:
    """The runs in a file.

    Raises:
        ArtifactError: The file is no such table, of another version, or damaged.
    """
    again = "Measure the runs again"
    try:
        table = pq.read_table(path, memory_map=False, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise ArtifactError(f"{path}: not a readable Parquet file ({error}). {again}") from error
    if not table.schema.equals(SCHEMA, check_metadata=True):
        raise ArtifactError(f"{path}: columns {table.schema.names}, expected {SCHEMA.names}. {again}")
    rows: list[SweepRow] = table.to_pylist()
    return rows


def best_by_series(rows: Iterable[SweepRow]) -> list[dict[str, Any]]:
    """The most tokens per pass of each series of runs, by language and tokenizer, with the tokens per word.

    A series is what a paper has a table or a line for: method, reading, limit in bytes and draft length.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        names = {name: row[name] for name in ("language", "tokenizer", "fertility")}
        pair = found.setdefault((row["language"], row["tokenizer"]), {**names, "tokens_per_pass": {}})
        best = pair["tokens_per_pass"]
        size = row["max_bytes"] and f"{row['max_bytes']:,} bytes"
        parts = (row["method"], row["reading"], size, f"{row['num_draft_tokens']} draft tokens")
        series = ", ".join(filter(None, parts))
        best[series] = max(row["tokens_per_pass"], best.get(series, 0.0))
    return list(found.values())
