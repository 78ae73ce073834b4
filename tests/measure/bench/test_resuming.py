"""Runs that are killed, interrupted, changed or damaged: what is kept, and what is measured again."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.compute as pc
import pytest

from spectool.artifacts.benchmark import Benchmark
from spectool.artifacts.resumable import work_path
from spectool.tests.measure.bench.recorded import (
    TARGET,
    TOKENS,
    killed_after_a_block,
    measuring_in_the_background,
    run,
    untimed,
)

pytestmark = pytest.mark.system


def test_a_finished_run_is_not_measured_again(work: Path, measured: Path) -> None:
    before = (measured / "manifest.json").stat().st_mtime_ns
    result = run("bench", work / "experiment.toml", "-o", measured, "--json")
    assert result.exit_code == 0, result.output
    assert (measured / "manifest.json").stat().st_mtime_ns == before
    assert "nothing was run" in result.stderr


def test_a_killed_run_goes_on_and_says_the_same(work: Path, measured: Path) -> None:
    out = work / "killed.bench"
    first = killed_after_a_block(work, out)
    kept = (first / "generations.jsonl").read_text(encoding="utf-8")
    assert not out.exists()
    result = run("bench", work / "experiment.toml", "-o", out)
    assert result.exit_code == 0, result.output
    resumed = Benchmark(out)
    assert untimed(resumed) == untimed(Benchmark(measured))
    assert not first.exists()
    block = pc.field("block") == 0
    assert [json.loads(line) for line in kept.splitlines()] == resumed.generations.filter(block).to_pylist()
    assert "resuming: 5 of 15 generations" in result.stderr


def test_an_interrupted_run_says_where_it_is_kept_and_nothing_else(work: Path) -> None:
    out, folder = work / "interrupted.bench", work_path(work / "interrupted.bench")
    command = [sys.executable, "-m", "spectool.cli", "bench", str(work / "experiment.toml"), "-o", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not (folder / "block-00000").exists():
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    kept = f"Interrupted. Finished work is kept in {folder}; the same command continues from there."
    assert errors.splitlines()[-1] == kept and "half-written" not in errors, errors
    assert list(folder.glob("block-*")) and not out.exists()


def test_another_experiment_is_not_mixed_in(work: Path, measured: Path) -> None:
    result = run("bench", work / "experiment.toml", "--tokens", TOKENS + 1, "-o", measured)
    assert result.exit_code == 1
    assert "is a run with other settings: experiment.tokens is" in result.stderr
    assert not (work_path(work / "whole.bench")).exists()


def test_what_changed_since_a_run_began_is_named(work: Path) -> None:
    out, folder = work / "begun.bench", work_path(work / "begun.bench")
    killed_after_a_block(work, out)
    kept = sorted(folder.glob("block-*"))
    result = run("bench", work / "experiment.toml", "--seed", 5, "-o", out)
    assert result.exit_code == 1
    assert "another run was begun there: experiment.seed is 0 there and 5 now" in result.stderr
    shutil.move(work / "pl.dict", work / "other.dict")
    assert run("build-dict", "--tokenizer", TARGET, "--corpus", "sample:uk", "-o", work / "pl.dict").exit_code == 0
    result = run("bench", work / "experiment.toml", "-o", out)
    shutil.rmtree(work / "pl.dict")
    shutil.move(work / "other.dict", work / "pl.dict")
    assert result.exit_code == 1
    assert f"artifact {work / 'pl.dict'} is " in result.stderr
    assert sorted(folder.glob("block-*")) == kept


def test_two_processes_do_not_measure_one_run(work: Path) -> None:
    out, folder = work / "two.bench", work_path(work / "two.bench")
    with measuring_in_the_background(work, out) as process:
        while not (folder / "key.json").exists():
            assert process.poll() is None
            time.sleep(0.01)
        result = run("bench", work / "experiment.toml", "-o", out)
        assert result.exit_code == 1
        assert "another run is writing there" in result.stderr
        assert process.wait() == 0
    assert len(Benchmark(out).generations) == 15


def test_a_damaged_block_is_measured_again(work: Path, measured: Path) -> None:
    out, folder = work / "damaged.bench", work_path(work / "damaged.bench")
    killed_after_a_block(work, out)
    (folder / "block-00000" / "cycles.jsonl").write_bytes(b"{")
    result = run("bench", work / "experiment.toml", "-o", out)
    assert result.exit_code == 0, result.output
    assert "measuring again" in result.stderr
    assert untimed(Benchmark(out)) == untimed(Benchmark(measured))


def test_a_start_that_fails_leaves_nothing(work: Path) -> None:
    out = work / "failed.bench"
    result = run("bench", work / "experiment.toml", "--drafter", "dict=none.dict", "--model", TARGET, "-o", out)
    assert result.exit_code == 1
    assert "none.dict: no such artifact" in result.stderr
    assert not (work_path(work / "failed.bench")).exists()
