"""The stage behind ``spectool tune-draft``: a draft model in, one that fits the target better out.

The text of every task becomes rows (`tasks`), steps are taken on a mini-batch of each (`tune_steps`), and the
draft is measured against the target at intervals (`acceptance`, `divergence`). The target is only asked.
What lies where until the end is in `work` and `tasks`.
"""

import math
import shutil
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlx_lm

from spectool import SpectoolError
from spectool.artifacts.work import work_path, working
from spectool.build.inputs import Progress, Reader
from spectool.build.training import checkpoints
from spectool.build.training.curve import CURVE, Point, read_curve, write_curve
from spectool.build.training.examples.continuations import KEPT
from spectool.build.training.examples.pairing import Pairing, pairing_of
from spectool.build.training.examples.tasks import Maker, Task, load_tasks, prepare
from spectool.build.training.interruption import deferred_interrupt
from spectool.build.training.steps import make_optimizer
from spectool.build.training.tuning.acceptance import acceptance, beginnings
from spectool.build.training.tuning.divergence import measure
from spectool.build.training.tuning.options import TuneOptions, check, key_of
from spectool.build.training.tuning.steps import Tuner
from spectool.build.training.tuning.task_curve import (
    TASKS,
    TaskPoint,
    points_of,
    read_tasks,
    write_task_plots,
    write_tasks,
)
from spectool.build.training.tuning.tuned_model import Opened, Trainable
from spectool.build.training.work import CHECKPOINT, finish, finished
from spectool.corpora import Corpus


def tune_draft(
    draft: Opened,
    target: Opened,
    corpora: dict[str, Corpus],
    out: Path,
    options: TuneOptions,
    progress: Progress,
    alignment: Path | None = None,
    shown: Callable[[Point, Sequence[TaskPoint]], None] = lambda point, measured: None,
    reader: Reader = iter,
    reading: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Tune a draft towards a target and write it to ``out``, which `mlx_lm.load` opens.

    The same call goes on where one that was killed had its last checkpoint, with the same numbers as without
    the kill: to the bit on a CPU; an accelerator may add in another order. The target is never changed.

    Args:
        draft: The draft; its weights are changed in memory.
        target: The target.
        corpora: Text by task.
        out: Directory of the model, made in one step when all is done. Until then the work lies beside it.
        options: See `TuneOptions`.
        progress: Called with a phrase when something begins.
        alignment: Alignment of the two tokenizers, if they have different ids.
        shown: Called with every step, and what was measured after it.
        reader: Iterates over a corpus.
        reading: How the corpora are read, for the record.

    Returns:
        The record that is also written to ``out/training.json``.

    Raises:
        SpectoolError: Options that do not fit together, text that is too short, another training in the same
            place, or a divergence that is no number any more.
        KeyboardInterrupt: Ctrl-C; the step is finished and a checkpoint written before.
    """
    pairing = pairing_of(draft.tokenizer, target.tokenizer, alignment)
    check(draft, target, corpora, pairing, options)
    key = key_of(draft, target, corpora, options, alignment, reading or {})
    record = finished(out, key)
    if record is not None:
        shutil.rmtree(work_path(out), ignore_errors=True)
        progress(f"{out} is finished already; remove it to tune it again")
        return record
    target.model.freeze()
    target.model.eval()
    with working(out, key, what="training", worth=(CHECKPOINT, KEPT), begin_anew=False) as work:
        lengths = (options.length, options.prompt_tokens, options.max_tokens)
        maker = Maker(
            draft.tokenizer,
            target.tokenizer,
            target.model,
            pairing,
            options.on,
            *lengths,
            options.temperature,
            options.batch,
            options.seed,
        )
        rows = options.completions if options.on == "completions" else options.steps * options.batch
        prepare(work, corpora, maker, rows, options.valid_rows, progress, reader)
        run = _Run(draft, target, pairing, options, work, progress)
        run.train(shown)
        return run.write(key, out)


class _Run:
    """A tuning in its work directory."""

    def __init__(
        self,
        draft: Opened,
        target: Opened,
        pairing: Pairing | None,
        options: TuneOptions,
        work: Path,
        progress: Progress,
    ) -> None:
        self._draft, self._target, self._pairing = draft, target, pairing
        self._options, self._work, self._progress = options, work, progress
        self._tasks, self._facts = load_tasks(work)
        self._trainable = Trainable(draft, options.lora, options.seed)
        self._model = self._trainable.model
        self._optimizer = make_optimizer(self._model)
        self._points: list[Point] = []
        self._measured: list[TaskPoint] = []
        self._spent = 0.0

    def train(self, shown: Callable[[Point, Sequence[TaskPoint]], None]) -> None:
        """Take all steps that are missing."""
        options = self._options
        self._say_what()
        self._go_on()
        tuner = Tuner(self._model, self._target.model, self._optimizer, self._pairing, self._tasks, options)
        measure_every, save_every = options.intervals
        begun = time.perf_counter() - self._spent
        if not self._measured:
            self._progress("measuring the draft as it is")
            self._measured = self._measure(self._model, 0)
        with deferred_interrupt() as interrupted:
            while len(self._points) < options.steps:
                step = len(self._points) + 1
                divergences, places = tuner.step(step - 1)
                loss = sum(divergences) / len(divergences)
                if not math.isfinite(loss):
                    raise SpectoolError(
                        f"the mean divergence of step {step} is {loss}: expected a number. Lower --rate (it is "
                        f"{options.rate:g}), with another -o"
                    )
                now = self._measure(self._model, step) if step % measure_every == 0 or step == options.steps else []
                self._measured += now
                self._spent = time.perf_counter() - begun
                tokens = places + (self._points[-1].tokens if self._points else 0)
                self._points.append(Point(step, tokens, self._spent, loss, None))
                shown(self._points[-1], now)
                stop = interrupted()
                if stop or step % save_every == 0 or step == options.steps:
                    self._save()
                if stop:
                    raise KeyboardInterrupt

    def write(self, key: dict[str, Any], out: Path) -> dict[str, Any]:
        """Write the model, measure it as it is stored, and put it in its place."""
        folder = self._work / "model"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self._progress("writing and measuring the model")
        self._trainable.write(folder)
        write_curve(folder / CURVE, self._points)
        write_tasks(folder / TASKS, self._measured)
        if find_spec("matplotlib") is not None:
            write_task_plots(self._measured, folder)
        before = [point for point in self._measured if point.step == 0]
        after = self._measure(mlx_lm.load(str(folder))[0], self._options.steps)
        last = self._points[-1]
        record = {
            "arguments": key,
            "steps": last.step,
            "tokens": last.tokens,
            "seconds": round(last.seconds, 1),
            "loss": last.loss,
            "measured": {"before": [p._asdict() for p in before], "after": [p._asdict() for p in after]},
            "unpacked": self._trainable.unpacked,
            "text": self._facts,
            "tokenizer": self._draft.tokenizer.identity,
        }
        return finish(folder, out, record)

    def _measure(self, model: Any, step: int) -> list[TaskPoint]:
        """Measure a draft on the held-out rows of all tasks."""
        options, pairing, target = self._options, self._pairing, self._target.model
        found = [measure(model, target, pairing, task.valid, options.batch) for task in self._tasks]
        proxies = [self._proxy(model, task, number) for number, task in enumerate(self._tasks)]
        return points_of(step, [task.name for task in self._tasks], found, proxies)

    def _proxy(self, model: Any, task: Task, number: int) -> float | None:
        if self._pairing is None or not self._pairing.same_vocabulary:
            return None
        prompts = beginnings([example.draft for example in task.valid], self._options.length)
        if not prompts:
            return None
        seed = [self._options.seed, number]
        return acceptance(model, self._target.model, self._pairing, prompts, seed)

    def _say_what(self) -> None:
        if self._trainable.unpacked:
            self._progress(
                f"{self._draft.name}: quantized; all of it is tuned and stored unpacked (--lora keeps it so)"
            )
        for name, facts in self._facts.items():
            share = facts["compared"]
            text = f"{name}: {facts['rows']:,} rows, {facts['valid_rows']:,} to measure on"
            if facts["left_out"]:
                text += f", {facts['left_out']:,} left out (too short, or not spelled by both tokenizers)"
            if share is not None and share < 1:
                assert self._pairing is not None
                text += (
                    f"; draft and target are compared at {share:.1%} of the draft's places, over "
                    f"{self._pairing.size:,} ids that both have"
                )
            self._progress(text)

    def _go_on(self) -> None:
        """Take up the last checkpoint, if there is one."""
        path = self._work / CHECKPOINT
        if path.exists():
            position = checkpoints.load(path, self._model, self._optimizer)
            self._points, self._spent = read_curve(self._work / CURVE)[: position.step], position.seconds
            self._measured = [point for point in read_tasks(self._work / TASKS) if point.step <= position.step]
            self._progress(f"going on after step {position.step:,} of {self._options.steps:,}")

    def _save(self) -> None:
        # In this order: the curves may be longer than the checkpoint says, but never shorter.
        write_tasks(self._work / TASKS, self._measured)
        write_curve(self._work / CURVE, self._points)
        position = checkpoints.Position(len(self._points), self._spent)
        checkpoints.save(self._work / CHECKPOINT, self._model, self._optimizer, position)
