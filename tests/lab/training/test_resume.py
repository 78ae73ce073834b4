"""A training that was killed goes on with the same numbers, to the bit."""

import signal
import subprocess
from pathlib import Path

import pytest

from spectool.lab.resumable import work_path
from spectool.tests.lab.training.tiny import curve, interrupted_at, run, started, trained

# A softmax by sample, both lengths of rows, checkpoints that are no measurements.
RUN = ["--steps", 60, "--softmax-classes", 300, "--measure-every", 5, "--checkpoint-every", 7, "--seed", 2]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of a run that was left alone."""
    out = tmp_path_factory.mktemp("whole") / "draft"
    trained(*RUN, "-o", out)
    return out


def stopped(out: Path, step: int, how: signal.Signals) -> subprocess.CompletedProcess[str]:
    """Run the command until it has measured after ``step``, then send a signal."""
    process = started(*RUN, "-o", out)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(f"step {step} of 60"):
            process.send_signal(how)
            break
    output, errors = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def same(one: Path, two: Path) -> None:
    assert curve(one) == curve(two)
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()


def test_killed(whole: Path, tmp_path: Path, step: int = 30) -> None:
    out = tmp_path / "draft"
    assert stopped(out, step, signal.SIGKILL).returncode == -signal.SIGKILL
    assert not out.exists()
    checkpoints = [path.name for path in work_path(out).glob("*checkpoint*")]
    assert "checkpoint.safetensors" in checkpoints
    result = run(*RUN, "-o", out)
    assert result.exit_code == 0, result.output
    begun = int(result.stderr.partition("resuming after step ")[2].split(" ")[0])
    assert step - 7 <= begun < 60 and begun % 7 == 0
    same(out, whole)
    assert not work_path(out).exists()


def broken(out: Path, step: int) -> None:
    with interrupted_at(step):
        assert run(*RUN, "-o", out).exit_code == 130


def test_killed_between_curve_and_checkpoint(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "draft"
    broken(out, 49)
    assert len(curve(work_path(out))) == 49
    assert "resuming after step 42 of 60" in run(*RUN, "-o", out).stderr
    same(out, whole)
