"""A run of steps: measured and saved at intervals, begun where an earlier one was stopped, written when all is done.

Another command with the same OUT finds an error that names what differs. The optimizer is AdamW with clipped
gradients, and a rate that rises and falls with the step. ``training.json`` beside the model says what was done.
"""

import json
import math
import platform
import shutil
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim
from mlx.optimizers import Optimizer
from tqdm import tqdm

from spectool import ArtifactError, SpectoolError, __version__
from spectool.artifacts.console import say
from spectool.artifacts.formats.draft import FORMAT, RECORD
from spectool.artifacts.manifest import file_entries
from spectool.artifacts.replacing import check_replaceable
from spectool.artifacts.work import differences, work_path, write_json
from spectool.build.inputs import Progress
from spectool.build.training import checkpoints
from spectool.build.training.checkpoints import CHECKPOINT, CURVE, Point, read_rows, write_rows
from spectool.build.training.run_options import RunOptions

_WARM_UP = 0.03  # of the steps
_LEAST = 0.02  # of the peak rate, at the end
_LONGEST_GRADIENT = 1.0


def rate_schedule(steps: int, peak: float) -> Callable[[mx.array], mx.array]:
    """Return the learning rate by step (from 0): linear warm-up, then half a cosine down to a fiftieth."""
    warm_up = max(1, round(steps * _WARM_UP))
    rising = optim.linear_schedule(peak / warm_up, peak * (1 + 1 / warm_up), warm_up)  # peak at the last step of it
    falling = optim.cosine_decay(peak, max(1, steps - warm_up), _LEAST * peak)
    return optim.join_schedules([rising, falling], [warm_up])


def make_optimizer(model: Any, steps: int, peak: float) -> optim.AdamW:
    """Return the optimizer of a model for a run of so many steps, with a state for each of its weights."""
    optimizer = optim.AdamW(rate_schedule(steps, peak), betas=[0.9, 0.98], weight_decay=0.05)
    optimizer.init(model.trainable_parameters())
    return optimizer


def update(model: Any, optimizer: optim.Optimizer, gradients: dict[str, Any]) -> None:
    """Apply gradients, scaled down where they are longer than 1."""
    clipped, _ = optim.clip_grad_norm(gradients, _LONGEST_GRADIENT)  # type: ignore[no-untyped-call]
    optimizer.update(model, clipped)


def finished(out: Path, key: Mapping[str, Any], progress: Progress) -> dict[str, Any] | None:
    """Return the record of a training with the same key that is finished; None where there is nothing yet.

    Args:
        out: Directory of the model.
        key: What the result depends on, as JSON values.
        progress: Is told of it.

    Raises:
        ArtifactError: There is something else.
    """
    if not (out / RECORD).is_file():
        check_replaceable(out, FORMAT)
        return None
    try:
        record: dict[str, Any] = json.loads((out / RECORD).read_text(encoding="utf-8"))
        there = record["arguments"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{out / RECORD}: not readable ({error}). Choose another -o, or remove {out}") from error
    if there != key:
        raise ArtifactError(
            f"{out}: has a model of another training: {differences(there, key)}. Choose another -o, or remove {out}"
        )
    shutil.rmtree(work_path(out), ignore_errors=True)
    progress(f"{out} is finished already; remove it to train it again")
    return record


class Run(ABC):
    """A training in its work directory.

    Attributes:
        rows: What is in its tables so far, by file.
    """

    title = "training"
    """Of the progress bar."""
    tables: Mapping[str, type[Any]] = MappingProxyType({CURVE: Point})
    """Kinds of rows that grow with the run, by file; each row has a ``step``."""

    def __init__(
        self, work: Path, model: Any, optimizer: Optimizer, options: RunOptions, progress: Progress, first: bool = True
    ) -> None:
        """Take up the last checkpoint, if there is one.

        Args:
            work: The work directory.
            model: What is trained, in place.
            optimizer: With a state for each of the weights.
            options: The run's.
            progress: Called with a phrase when something begins.
            first: Whether this process is the one that measures, shows and writes.
        """
        self._work, self._model, self._optimizer, self._options = work, model, optimizer, options
        self._progress, self._first = progress, first
        self._seconds = 0.0
        self.rows: dict[str, list[Any]] = {file: [] for file in self.tables}
        if (work / CHECKPOINT).exists():
            last, self._seconds = checkpoints.load(work / CHECKPOINT, model, optimizer)
            for file, kind in self.tables.items():
                self.rows[file] = [row for row in read_rows(work / file, kind) if row.step <= last]
            progress(f"going on after step {last:,} of {options.steps:,}")

    @property
    def points(self) -> list[Point]:
        """The curve so far."""
        return self.rows[CURVE]

    @abstractmethod
    def step(self, step: int, stop: bool) -> tuple[float, int, bool]:
        """Take a step (from 0); ``stop`` says whether this process wants to end after it.

        Returns:
            Loss, nats per token; tokens learned; whether any process wants to end.
        """

    @abstractmethod
    def measure(self, step: int) -> tuple[float | None, str]:
        """Measure on held-out text after so many steps; return bits per byte, if known, and a phrase."""

    @abstractmethod
    def store(self, folder: Path) -> dict[str, Any]:
        """Write the model with its tokenizer; return what the record says of it."""

    @abstractmethod
    def draw(self, folder: Path) -> None:
        """Draw the curves."""

    def train(self) -> None:
        """Take all steps that are missing.

        Raises:
            SpectoolError: A loss that is no number any more.
            KeyboardInterrupt: Ctrl-C; the step is finished and a checkpoint written before.
        """
        steps = self._options.steps
        measure_every, save_every = self._options.intervals
        begun = time.perf_counter() - self._seconds
        with self._display() as show, deferred_interrupt() as interrupted:
            while len(self.points) < steps:
                step = len(self.points) + 1
                loss, tokens, stop = self.step(step - 1, interrupted())
                if not math.isfinite(loss):
                    raise SpectoolError(
                        f"the loss of step {step} is {loss}: expected a number. Lower --rate, with another -o"
                    )
                bits, measured = None, ""
                if self._first and (step % measure_every == 0 or step == steps):
                    bits, measured = self.measure(step)
                self._seconds = time.perf_counter() - begun
                before = self.points[-1].tokens if self.points else 0
                self.points.append(Point(step, before + tokens, self._seconds, loss, bits))
                show(self.points[-1], measured)
                if self._first and (stop or step % save_every == 0 or step == steps):
                    self._save()
                if stop:
                    raise KeyboardInterrupt(f"Interrupted after step {step:,}; the same command goes on from there.")

    def write(self, key: dict[str, Any], out: Path) -> dict[str, Any]:
        """Write the model, measured as it is stored, and its record to ``out``; return the record."""
        folder = self._work / "model"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self._progress("writing and measuring the model")
        facts = self.store(folder)
        self._write_tables(folder)
        if find_spec("matplotlib") is not None:
            self.draw(folder)
        last = self.points[-1]
        record = {
            "arguments": key,
            "steps": last.step,
            "tokens": last.tokens,
            "seconds": round(last.seconds, 1),
            "loss": last.loss,
            **facts,
            "files": file_entries(folder),
            "device": str(mx.default_device()),
            "versions": {
                "spectool": __version__,
                "python": platform.python_version(),
                **{name: version(name) for name in ("mlx", "mlx-lm", "numpy")},
            },
        }
        write_json(folder / RECORD, record)
        folder.replace(out.resolve())
        return record

    def _save(self) -> None:
        # In this order: the curves may be longer than the checkpoint says, but never shorter.
        self._write_tables(self._work)
        checkpoints.save(self._work / CHECKPOINT, self._model, self._optimizer, len(self.points), self._seconds)

    def _write_tables(self, folder: Path) -> None:
        for file, kind in self.tables.items():
            write_rows(folder / file, kind, self.rows[file])

    @contextmanager
    def _display(self) -> Iterator[Callable[[Point, str], None]]:
        """Give a function that shows a step: under a bar in a terminal, elsewhere a line for every measurement."""
        steps, known = self._options.steps, ""
        with tqdm(
            total=steps,
            initial=len(self.points),
            desc=self.title,
            unit=" steps",
            disable=None if self._first else True,
            smoothing=0.05,
        ) as bar:

            def show(point: Point, measured: str) -> None:
                nonlocal known
                known = f", {measured}" if measured else known
                figures = f"{point.loss:.3f} nats/token{known}, {point.tokens / point.seconds:,.0f} tokens/s"
                bar.set_postfix_str(figures, refresh=False)
                bar.update()
                if self._first and bar.disable and measured:
                    left = (steps - point.step) * point.seconds / point.step / 60
                    say(f"step {point.step:,} of {steps:,}: {figures}, {left:.1f} min left")

            yield show


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether Ctrl-C was pressed; while it is in use, only the second one interrupts."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    if threading.current_thread() is not threading.main_thread():  # which has no signals
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
