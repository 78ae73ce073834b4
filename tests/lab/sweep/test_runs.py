"""The file of runs: what is written is read, and nothing else."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spectool import ArtifactError
from spectool.lab.sweep.results import SCHEMA, SweepRow, key, read_runs, write_runs


def row(**columns: object) -> SweepRow:
    return {**dict.fromkeys(SCHEMA.names), **columns}


def test_runs_come_back_in_the_order_of_their_settings(tmp_path: Path) -> None:
    rows = [row(language="uk", min_prob=0.2), row(language="pl", entries_asked=10), row(language="pl"), row()]
    write_runs(tmp_path / "runs.parquet", rows)
    assert read_runs(tmp_path / "runs.parquet") == [rows[3], rows[2], rows[1], rows[0]]
    assert [path.name for path in tmp_path.iterdir()] == ["runs.parquet"]


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    rows = [row(language="uk", tokens=4), row(language="pl", tokens=3)]
    write_runs(tmp_path / "a", rows)
    write_runs(tmp_path / "b", reversed(rows))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_of_equal_runs_the_first_counts(tmp_path: Path) -> None:
    first, again, other = row(language="pl", tokens=1), row(language="pl", tokens=2), row(language="uk")
    assert key(first) == key(again) != key(other)
    write_runs(tmp_path / "runs.parquet", [first, again, other])
    assert read_runs(tmp_path / "runs.parquet") == [first, other]


@pytest.mark.parametrize("damage", ["cut", "text", "another table", "another version", "missing"])
def test_another_file_is_named_and_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "runs.parquet"
    write_runs(path, [row(language="pl")])
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "text":
        path.write_text("runs")
    elif damage == "another table":
        pq.write_table(pa.table({"a": [1]}), path)
    elif damage == "another version":
        pq.write_table(pa.Table.from_pylist([], SCHEMA.with_metadata({"spectool-runs": "0"})), path)
    else:
        path.unlink()
    with pytest.raises(ArtifactError, match=r"runs\.parquet: "):
        read_runs(path)
