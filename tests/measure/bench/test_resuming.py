"""Runs that are killed, interrupted or changed: what is kept, and what is measured again."""

import shutil
import signal
from pathlib import Path

import pytest

from spectool.measure.bench.run_file import PAGE, RUN_FILE, read_run
from spectool.tests.measure.bench.recorded import (
    TARGET,
    TOKENS,
    killed_after_a_block,
    measuring,
    options,
    untimed,
    wait_for_a_block,
)
from spectool.tests.running import error_of, run

pytestmark = pytest.mark.system


def test_a_finished_run_is_not_measured_again_and_its_page_is_written_again(work: Path, measured: Path) -> None:
    before, page = (measured / RUN_FILE).stat().st_mtime_ns, (measured / PAGE).read_text(encoding="utf-8")
    (measured / PAGE).unlink()
    result = run(*options(work, measured), "--json")
    assert result.exit_code == 0, result.output
    assert (measured / RUN_FILE).stat().st_mtime_ns == before
    assert "nothing was run" in result.stderr and "loading" not in result.stderr
    assert (measured / PAGE).read_text(encoding="utf-8") == page


def test_a_killed_run_goes_on_and_says_the_same(work: Path, measured: Path) -> None:
    out = work / "killed.bench"
    kept = killed_after_a_block(work, out)
    whole = kept[: kept.rindex(b"\n") + 1]
    measured_blocks = whole.count(b"\n") - 1
    (out / RUN_FILE).write_bytes(whole + b'{"prompt":"x","sour')  # as a kill in the middle of a line leaves it
    assert not (out / PAGE).exists() and len(read_run(out).blocks) == measured_blocks
    result = run(*options(work, out))
    assert result.exit_code == 0, result.output
    assert f"resuming: {measured_blocks} of 3 blocks" in result.stderr
    assert untimed(read_run(out)) == untimed(read_run(measured))
    assert (out / RUN_FILE).read_bytes().startswith(whole) and (out / PAGE).exists()


def test_an_interrupted_run_says_that_it_goes_on_and_nothing_else(work: Path) -> None:
    out = work / "interrupted.bench"
    with measuring(work, out) as process:
        wait_for_a_block(process, out)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    kept = f"Interrupted. What is measured is kept in {out}; the same command continues from there."
    assert errors.splitlines()[-1] == kept and "half-written" not in errors, errors


def test_what_changed_since_a_run_began_is_named(work: Path, measured: Path) -> None:
    before = (measured / RUN_FILE).read_bytes()
    refused = error_of(run(*options(work, measured, "--seed", 5)))
    assert f"{measured}: is a run with other settings: options.seed is 0 there and 5 now. Name another -o" in refused
    refused = error_of(run(*options(work, measured, "--tokens", TOKENS + 1)))
    assert f"options.tokens is {TOKENS} there and {TOKENS + 1} now" in refused
    shutil.move(work / "pl.dict", work / "other.dict")
    try:
        built = run("build-dict", "--tokenizer", TARGET, "--corpus", "sample:uk", "-o", work / "pl.dict")
        assert built.exit_code == 0
        refused = error_of(run(*options(work, measured)))
    finally:
        shutil.rmtree(work / "pl.dict")
        shutil.move(work / "other.dict", work / "pl.dict")
    assert f"artifact {work / 'pl.dict'} is " in refused
    assert (measured / RUN_FILE).read_bytes() == before


def test_two_processes_do_not_measure_one_run(work: Path) -> None:
    out = work / "two.bench"
    with measuring(work, out) as process:
        wait_for_a_block(process, out)
        assert "another run is measured there. Wait for it" in error_of(run(*options(work, out)))
        assert process.wait() == 0
    assert len(read_run(out).blocks) == 3
