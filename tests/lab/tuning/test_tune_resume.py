"""A tuning that was killed goes on with the same numbers, to the bit."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spectool.lab.resumable import work_path
from spectool.lab.training.run import CURVE, Point, read_table
from spectool.lab.tuning.stage import STEPS, TASKS, StepPoint, TaskPoint
from spectool.tests.lab.training.tiny_pair import CORPORA, TINY, run, stored, tuned

RUN = ["--steps", 40, "--measure-every", 8, "--checkpoint-every", 3, "--seed", 2]
FAIR = [*RUN, "--objective", "s-cdf"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A draft and a target."""
    folder = tmp_path_factory.mktemp("models")
    return stored(folder / "draft", seed=2, scale=0.1), stored(folder / "target", hidden=24, seed=1, scale=0.4)


@pytest.fixture(scope="module")
def whole(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The draft of a run that was left alone."""
    out = tmp_path_factory.mktemp("whole") / "tuned"
    tuned(*models, *FAIR, "-o", out)
    return out


def stopped(models: tuple[Path, Path], out: Path, arguments: list[object], step: int, how: signal.Signals) -> int:
    """Run the command in a process of its own until it has measured after ``step``, then send a signal."""
    draft, target = models
    command = [sys.executable, "-m", "spectool.cli", "lab", "tune-draft", "--draft", draft, "--target", target]
    command += [*CORPORA, *TINY, *arguments, "-o", out]
    process = subprocess.Popen(
        [str(part) for part in command],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(f"step {step} of 40"):
            process.send_signal(how)
            break
    process.communicate(timeout=120)
    return process.returncode


def same(one: Path, two: Path) -> None:
    curves = [[point._replace(seconds=0.0) for point in read_table(out / CURVE, Point)] for out in (one, two)]
    assert curves[0] == curves[1]
    assert read_table(one / TASKS, TaskPoint) == read_table(two / TASKS, TaskPoint)
    assert read_table(one / STEPS, StepPoint) == read_table(two / STEPS, StepPoint)
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()


def killed(models: tuple[Path, Path], whole: Path, out: Path, arguments: list[object]) -> None:
    assert stopped(models, out, arguments, 16, signal.SIGKILL) == -signal.SIGKILL
    assert not out.exists()
    assert (work_path(out) / "checkpoint.safetensors").exists()
    result = run(*models, *arguments, "-o", out)
    assert result.exit_code == 0, result.output
    begun = int(result.stderr.partition("resuming after step ")[2].split(" ")[0])
    assert 12 <= begun < 40 and begun % 3 == 0
    same(out, whole)
    assert not work_path(out).exists()


def test_killed(models: tuple[Path, Path], whole: Path, tmp_path: Path) -> None:
    killed(models, whole, tmp_path / "tuned", FAIR)


@pytest.mark.slow
def test_interrupted(models: tuple[Path, Path], whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    assert stopped(models, out, FAIR, 8, signal.SIGINT) == 130
    assert (work_path(out) / "checkpoint.safetensors").exists()
    assert run(*models, *FAIR, "-o", out).exit_code == 0
    same(out, whole)
