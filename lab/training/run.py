"""A run of training steps: measured and saved at intervals, resumed where an earlier one stopped, written at the end.

The work directory has ``checkpoint.safetensors`` (weights, state of the optimizer, step) and Parquet tables with rows
for each step. What a step learns depends only on the seed and its number, so a resumed run has the same numbers.

``training.json`` next to the model records what was done; `docs/lab/training.md` describes it. The optimizer is AdamW
with clipped gradients and a rate that follows the step.
"""

import hashlib
import json
import math
import os
import platform
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import mlx.core as mx
import mlx.optimizers as optim
import pyarrow as pa
import pyarrow.parquet as pq
from mlx.utils import tree_flatten, tree_unflatten
from tqdm import tqdm

from spectool import ArtifactError, SpectoolError, __version__
from spectool.artifacts.atomic import atomic_file, require_new
from spectool.commands.shared.console import say
from spectool.lab.resumable import differences, work_path, write_json
from spectool.lab.training.options import RunOptions

RECORD = "training.json"
CHECKPOINT = "checkpoint.safetensors"
CURVE = "curve.parquet"
_WARM_UP = 0.03  # of the steps
_LEAST = 0.02  # of the peak rate, at the end
_LONGEST_GRADIENT = 1.0
Options = TypeVar("Options", bound=RunOptions)
NamedRow = TypeVar("NamedRow", bound=tuple[Any, ...])
_TYPES: dict[Any, Any] = {int: pa.int64(), str: pa.string()}


class Point(NamedTuple):
    """One step of a curve."""

    step: int  # from 1
    tokens: int  # learned since the start
    seconds: float  # since the start
    loss: float  # of the text of the step, nats per token
    bits_per_byte: float | None  # of held-out text; None where it was not measured


def write_table(path: Path, kind: type[Any], rows: Iterable[Any]) -> None:
    """Write named tuples of one kind as a Parquet table, atomically."""
    schema = pa.schema([(name, _TYPES.get(type_, pa.float64())) for name, type_ in kind.__annotations__.items()])
    table = pa.Table.from_pylist([row._asdict() for row in rows], schema)
    with atomic_file(path) as partial:
        pq.write_table(table, partial, compression="zstd")


def read_table(path: Path, kind: type[NamedRow]) -> list[NamedRow]:
    """The rows that `write_table` wrote."""
    return [kind(**row) for row in pq.read_table(path, memory_map=False, partitioning=None).to_pylist()]


def rate_schedule(steps: int, peak: float) -> Callable[[mx.array], mx.array]:
    """The learning rate by step (from 0): linear warm-up, then half a cosine down to a fiftieth of the peak."""
    warm_up = max(1, round(steps * _WARM_UP))
    rising = optim.linear_schedule(peak / warm_up, peak * (1 + 1 / warm_up), warm_up)  # peak at its last step
    falling = optim.cosine_decay(peak, max(1, steps - warm_up), _LEAST * peak)
    return optim.join_schedules([rising, falling], [warm_up])


def finished_training(out: Path, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """The record of a finished training with the same key, or None if there is nothing yet.

    Raises:
        ArtifactError: There is something else.
    """
    if not (out / RECORD).is_file():
        require_new(out)
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
    say(f"{out} is finished already; remove it to train it again")
    return record


def _described(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}


class TrainingRun(ABC, Generic[Options]):
    """A training in its work directory.

    Attributes:
        rows: The rows of its tables so far, by file.
    """

    title = "training"  # of the progress bar
    tables: Mapping[str, type[Any]] = MappingProxyType({CURVE: Point})  # kinds of rows by file; each has a ``step``

    def __init__(self, work: Path, model: Any, options: Options, rate: float) -> None:
        """Resume the last checkpoint in ``work``, if there is one; the model is trained in place.

        ``rate`` is the peak of the learning rate.
        """
        self._work, self._model, self._options = work, model, options
        self._optimizer = optim.AdamW(rate_schedule(options.steps, rate), betas=[0.9, 0.98], weight_decay=0.05)
        self._optimizer.init(model.trainable_parameters())
        self.rows: dict[str, list[Any]] = {file: [] for file in self.tables}
        if (work / CHECKPOINT).exists():
            last = self._load(work / CHECKPOINT)
            for file, kind in self.tables.items():
                self.rows[file] = [row for row in read_table(work / file, kind) if row.step <= last]
            say(f"resuming after step {last:,} of {options.steps:,}")

    @property
    def points(self) -> list[Point]:
        """The curve so far."""
        return self.rows[CURVE]

    @abstractmethod
    def step(self, step: int) -> tuple[float, int]:
        """Take a step (from 0); return the loss in nats per token, and the number of tokens learned."""

    @abstractmethod
    def measure(self, step: int) -> tuple[float | None, str]:
        """Measure on held-out text after this many steps; return bits per byte, if known, and a description."""

    @abstractmethod
    def store(self, folder: Path) -> dict[str, Any]:
        """Write the model with its tokenizer; return what the record says about it."""

    def update(self, gradients: dict[str, Any]) -> None:
        """Apply gradients, scaled down where they are longer than 1."""
        clipped, _ = optim.clip_grad_norm(gradients, _LONGEST_GRADIENT)  # type: ignore[no-untyped-call]
        self._optimizer.update(self._model, clipped)

    def train(self) -> None:
        """Take all steps that are left, with a bar in a terminal, elsewhere with a line for each measurement.

        Raises:
            SpectoolError: The loss is not a number any more.
        """
        steps, known = self._options.steps, ""
        measure_every, save_every = self._options.intervals
        last = self.points[-1] if self.points else Point(0, 0, 0.0, math.nan, None)
        begun = time.perf_counter() - last.seconds
        bar = tqdm(total=steps, initial=last.step, desc=self.title, unit=" steps", disable=None, smoothing=0.05)
        with bar:
            for step in range(last.step + 1, steps + 1):
                loss, tokens = self.step(step - 1)
                if not math.isfinite(loss):
                    raise SpectoolError(
                        f"the loss of step {step} is {loss}: expected a number. Lower --rate, with another -o"
                    )
                bits, measured = None, ""
                if step % measure_every == 0 or step == steps:
                    bits, measured = self.measure(step)
                    known = f", {measured}"
                last = Point(step, last.tokens + tokens, time.perf_counter() - begun, loss, bits)
                self.points.append(last)
                figures = f"{loss:.3f} nats/token{known}, {last.tokens / last.seconds:,.0f} tokens/s"
                bar.set_postfix_str(figures, refresh=False)
                bar.update()
                if bar.disable and measured:
                    left = (steps - step) * last.seconds / step / 60
                    say(f"step {step:,} of {steps:,}: {figures}, {left:.1f} min left")
                if step % save_every == 0 or step == steps:
                    self._write_tables(self._work)  # first: they may have more steps than the checkpoint, never fewer
                    self._save(self._work / CHECKPOINT, step)

    def write(self, key: dict[str, Any], out: Path) -> dict[str, Any]:
        """Write the model, measured as it is stored, and its record to ``out``; return the record."""
        folder = self._work / "model"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        say("writing and measuring the model")
        facts = self.store(folder)
        self._write_tables(folder)
        last = self.points[-1]
        record = {
            "arguments": key,
            "steps": last.step,
            "tokens": last.tokens,
            "seconds": round(last.seconds, 1),
            "loss": last.loss,
            **facts,
            "files": {file.name: _described(file) for file in sorted(folder.iterdir())},
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

    def _write_tables(self, folder: Path) -> None:
        for file, kind in self.tables.items():
            write_table(folder / file, kind, self.rows[file])

    def _save(self, path: Path, step: int) -> None:
        """Write a checkpoint and wait until it is on the disk."""
        state = {"model": self._model.parameters(), "optimizer": self._optimizer.state}
        arrays: Any = tree_flatten(state, destination={})
        with atomic_file(path) as partial, partial.open("wb") as file:
            mx.save_safetensors(file, arrays, {"step": str(step)})
            file.flush()
            os.fsync(file.fileno())

    def _load(self, path: Path) -> int:
        """Put a checkpoint into the model and its optimizer; return the number of steps done."""
        try:
            found: Any = mx.load(str(path), return_metadata=True)
            arrays, metadata = found
            state: Any = tree_unflatten(arrays)
            self._model.load_weights(tree_flatten(state["model"]))
            self._optimizer.state = state["optimizer"]
            self._optimizer.init(self._model.trainable_parameters())
            mx.eval(self._model.parameters(), self._optimizer.state)
            return int(metadata["step"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise ArtifactError(
                f"{path}: not a readable checkpoint ({error}). Remove {path.parent} and give the same command to start "
                "again"
            ) from error
