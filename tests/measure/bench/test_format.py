"""Runs that an earlier spectool saved open still."""

from pathlib import Path

import pytest

from spectool.artifacts.benchmark import CYCLES, FORMAT, GENERATIONS, PLAIN, VERSION, Benchmark, write_block
from spectool.artifacts.manifest import Manifest, seal
from spectool.tests.measure.old_runs import as_version


def saved(path: Path, version: int, temperature: float) -> Path:
    """A generation and a cycle as a version wrote them."""
    path.mkdir()
    plain = {"block": 0, "order": 0, "drafter": PLAIN, "temperature": temperature, "output": [5]}
    write_block(path, [plain], [{"block": 0, "order": 1, "position": 3}])
    as_version(path, version)
    seal(path, Manifest(FORMAT, version, {"temperature": temperature}, {}, {}, {}))
    return path


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("version", range(1, VERSION))
def test_a_run_of_an_earlier_version_reads_as_one_of_today(tmp_path: Path, version: int, temperature: float) -> None:
    old, new = (Benchmark(saved(tmp_path / str(number), number, temperature)) for number in (version, VERSION))
    assert old.generations.schema.equals(GENERATIONS, check_metadata=True)
    assert old.cycles.schema.equals(CYCLES, check_metadata=True)
    assert old.generations.to_pylist() == new.generations.to_pylist()
    assert old.cycles.to_pylist() == new.cycles.to_pylist()
    assert old.generations["temperature"].to_pylist() == [temperature]
