"""Runs that an earlier spectool saved open still."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spectool.artifacts.formats.benchmark import CYCLES, FORMAT, GENERATIONS, PLAIN, VERSION, Benchmark, write_block
from spectool.artifacts.manifest import Manifest, seal


def saved(path: Path, version: int, temperature: float) -> Path:
    """A generation and a cycle as version 1 or 2 wrote them."""
    path.mkdir()
    plain = {"block": 0, "order": 0, "drafter": PLAIN, "temperature": temperature, "output": [5]}
    write_block(path, [plain], [{"block": 0, "order": 1, "position": 3}])
    if version == 1:
        for name in ("generations.parquet", "cycles.parquet"):
            table = pq.read_table(path / name)
            old = table.drop_columns(["temperature"]) if name == "generations.parquet" else table
            pq.write_table(old.replace_schema_metadata({"spectool-benchmark": "1"}), path / name)
    seal(path, Manifest(FORMAT, version, {"temperature": temperature}, {}, {}, {}))
    return path


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_run_of_version_1_reads_as_one_of_today(tmp_path: Path, temperature: float) -> None:
    old, new = (Benchmark(saved(tmp_path / str(number), number, temperature)) for number in (1, VERSION))
    assert old.generations.schema.equals(GENERATIONS, check_metadata=True)
    assert old.cycles.schema.equals(CYCLES, check_metadata=True)
    assert old.generations.to_pylist() == new.generations.to_pylist()
    assert old.cycles.to_pylist() == new.cycles.to_pylist()
    assert old.generations["temperature"].to_pylist() == [temperature]
