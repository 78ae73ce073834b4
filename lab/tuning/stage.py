"""The stage behind ``spectool lab tune-draft``: a draft model in, one that fits the target better out.

The text of each task becomes rows (`tasks`), and a step learns a mini-batch of each task (`corrective`). At intervals
the draft is measured against the target (`divergence`), which never changes. In addition to the curve of the loss, two
tables record how each task develops:

    tasks.parquet    step, task, divergence, kl, acceptance, unfairness, unfairness_kl, acceptance_variance
    steps.parquet    step, task, divergence, reference

``divergence`` is D_T, the mean cross-entropy of draft against target on held-out text, nats; ``kl`` is KL(p || q).
``acceptance`` is alpha_T, the share of drawn drafts that rejection sampling accepts, between 0 and 1.
``unfairness`` and ``unfairness_kl`` (U of D_T and of KL, nats squared) and ``acceptance_variance`` are of all tasks of
the step.

In ``steps.parquet`` the divergence is that of the mini-batch before the step, by which s-CDF weighs the task. The task
with the smallest one is the ``reference`` of the step: 1, others 0.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from mlx.nn.utils import value_and_grad

from spectool import SpectoolError
from spectool.commands.shared.console import say
from spectool.corpora import Corpus
from spectool.lab.resumable import resumable_work
from spectool.lab.training.options import TuneOptions
from spectool.lab.training.run import CHECKPOINT, CURVE, Point, TrainingRun, finished_training
from spectool.lab.tuning.corrective import GradientSum, unfairness
from spectool.lab.tuning.divergence import (
    Divergence,
    Pairing,
    cross_entropy,
    log_p_of,
    measure_divergence,
    pairing_of,
)
from spectool.lab.tuning.examples import batch_of, examples_of_step
from spectool.lab.tuning.tasks import TuningTask, read_tasks
from spectool.lab.tuning.tuned_model import OpenedModel, Trainable
from spectool.runtime.mlx_lm_compat import mlx_lm

TASKS, STEPS = "tasks.parquet", "steps.parquet"
_VERSION = 9  # of how arguments make a model and its tables


class TaskPoint(NamedTuple):
    """A task at a step; see the module for the units."""

    step: int
    task: str
    divergence: float
    kl: float
    acceptance: float
    unfairness: float
    unfairness_kl: float
    acceptance_variance: float


class StepPoint(NamedTuple):
    """A task's mini-batch in a step; see the module for the units."""

    step: int
    task: str
    divergence: float
    reference: int


def points_of(step: int, names: Sequence[str], measured: Sequence[Divergence]) -> list[TaskPoint]:
    """The rows of a measurement; each has the figures of all tasks."""
    entropies, distances, acceptances, _ = zip(*measured, strict=True)
    of_all = unfairness(entropies), unfairness(distances), float(np.var(acceptances))
    columns = zip(names, entropies, distances, acceptances, strict=True)
    return [TaskPoint(step, *figures, *of_all) for figures in columns]


def tune(
    draft: OpenedModel,
    target: OpenedModel,
    corpora: dict[str, Corpus],
    out: Path,
    options: TuneOptions,
    alignment: Path | None = None,
) -> dict[str, Any]:
    """Tune a draft towards a target, write it to ``out`` for `mlx_lm.load`, and return its record.

    The same call resumes a tuning that was killed, as with `train_from_scratch`. The draft is changed in memory, the
    target is not.

    Args:
        draft: The draft.
        target: The target.
        corpora: Text by task.
        out: Directory of the model, written atomically at the end. Until then the work is kept next to it.
        options: How to tune.
        alignment: Alignment of the two tokenizers, needed if they have different vocabularies.

    Raises:
        SpectoolError: Options do not fit together, the text is too short, another training runs in the same place, or
            the loss is no longer a number.
    """
    if options.objective == "s-cdf" and len(corpora) < 2:
        raise SpectoolError(
            "--objective s-cdf weighs tasks by their distance to the best one: expected two or more --corpus, got "
            f"{len(corpora)}. Give a --corpus NAME=SPEC for each task, or --objective mean"
        )
    pairing = pairing_of(draft.tokenizer, target.tokenizer, alignment)
    key = options.key(
        command="tune-draft",
        draft=draft.identity,
        target=target.identity,
        alignment=None if alignment is None else str(alignment),
        corpora={name: corpus.spec for name, corpus in corpora.items()},
        files=[list(file.values()) for corpus in corpora.values() for file in corpus.describe_inputs()],
        version=_VERSION,
    )
    record = finished_training(out, key)
    if record is not None:
        return record
    target.model.freeze()
    target.model.eval()
    with resumable_work(out, key, what="training", keep=(CHECKPOINT,), begin_anew=False) as work:
        tasks = read_tasks(draft.tokenizer, target.tokenizer, corpora, options)
        run = _Tuning(draft, target.model, pairing, tasks, options, work)
        run.train()
        return run.write(key, out)


class _Tuning(TrainingRun[TuneOptions]):
    title = "tuning"
    tables = MappingProxyType({CURVE: Point, TASKS: TaskPoint, STEPS: StepPoint})

    def __init__(
        self,
        draft: OpenedModel,
        target: Any,
        pairing: Pairing,
        tasks: Sequence[TuningTask],
        options: TuneOptions,
        work: Path,
    ) -> None:
        self._draft, self._target, self._pairing, self._tasks = draft.tokenizer, target, pairing, tasks
        self._trainable = Trainable(draft)
        if self._trainable.unpacked:
            say(f"{draft.name}: quantized; it is dequantized, tuned, and stored so")
        for task in self._tasks:
            say(f"{task.name}: {_described(task.facts, pairing)}")
        super().__init__(work, self._trainable.model, options, options.rate)
        if not self.rows[TASKS]:
            say("measuring the draft as it is")
            self.measure(0)

    def step(self, step: int) -> tuple[float, int]:
        """Take a step; the loss is the mean D_T of the tasks' mini-batches before it."""
        options = self._options
        gradients, losses, places = GradientSum(options.objective), list[float](), 0
        for number, task in enumerate(self._tasks):
            chosen = examples_of_step(step, len(task.train), options.batch, [options.seed, number])
            batch = batch_of([task.train[place] for place in chosen])
            log_p = log_p_of(self._target, self._pairing, batch)
            divergence = partial(cross_entropy, self._model, self._pairing, batch, log_p)
            loss, gradient = value_and_grad(self._model, divergence)()
            mx.eval(loss, gradient)
            losses.append(float(loss.item()))
            gradients.add(losses[-1], gradient)
            places += len(batch.rows)
        found = gradients.divergences
        self.rows[STEPS] += [
            StepPoint(step + 1, task.name, divergence, int(place == found.index(min(found))))
            for place, (task, divergence) in enumerate(zip(self._tasks, found, strict=True))
        ]
        self.update(gradients.total())
        mx.eval(self._model.parameters(), self._optimizer.state)
        return sum(losses) / len(losses), places

    def measure(self, step: int) -> tuple[float | None, str]:
        measured = self._measured(self._model, step)
        self.rows[TASKS] += measured
        return None, "held out " + ", ".join(f"{point.task} {point.divergence:.3f}" for point in measured)

    def store(self, folder: Path) -> dict[str, Any]:
        self._trainable.write(folder)
        before = [point for point in self.rows[TASKS] if point.step == 0]
        after = self._measured(mlx_lm.load(str(folder))[0], self._options.steps)
        references = Counter(point.task for point in self.rows[STEPS] if point.reference)
        return {
            "references": {task.name: references[task.name] / self._options.steps for task in self._tasks},
            "measured": {"before": [p._asdict() for p in before], "after": [p._asdict() for p in after]},
            "unpacked": self._trainable.unpacked,
            "text": {task.name: task.facts for task in self._tasks},
            "tokenizer": self._draft.identity,
        }

    def _measured(self, model: Any, step: int) -> list[TaskPoint]:
        asked = self._target, self._pairing
        found = [measure_divergence(model, *asked, task.valid, self._options.batch) for task in self._tasks]
        return points_of(step, [task.name for task in self._tasks], found)


def _described(facts: dict[str, Any], pairing: Pairing) -> str:
    """What is known of a task's rows, in words."""
    text, share = f"{facts['rows']:,} rows, {facts['valid_rows']:,} to measure on", facts["compared"]
    if facts["left_out"]:
        text += f", {facts['left_out']:,} left out (too short, or not spelled by both tokenizers)"
    if share < 1:
        text += (
            f"; draft and target are compared at {share:.1%} of the draft's places, over {pairing.size:,} shared ids"
        )
    return text
