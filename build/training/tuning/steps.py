"""Steps of a tuning: a mini-batch of every task, one gradient of all, clipped, and AdamW."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim
from mlx.nn.utils import value_and_grad

from spectool.build.training.examples.examples import Batch, Draws, batch_of
from spectool.build.training.examples.pairing import Pairing
from spectool.build.training.examples.tasks import Task
from spectool.build.training.steps import rate_at
from spectool.build.training.tuning.corrective import GradientSum
from spectool.build.training.tuning.divergence import cross_entropy, distribution_cross_entropy, entropy_of, log_p_of
from spectool.build.training.tuning.options import TuneOptions

_LONGEST_GRADIENT = 1.0


class Tuner:
    """Takes one step after another, in any process the same ones."""

    def __init__(
        self,
        model: Any,
        target: Any,
        optimizer: optim.Optimizer,
        pairing: Pairing | None,
        tasks: Sequence[Task],
        options: TuneOptions,
    ) -> None:
        """Get ready; the model and the optimizer are changed in place, the target never.

        Args:
            model: The draft.
            target: The target.
            optimizer: Of the draft.
            pairing: How the two are compared; needed for the target's distribution.
            tasks: What to train on.
            options: The run's.
        """
        self._model, self._target, self._optimizer = model, target, optimizer
        self._pairing = pairing if options.on == "distribution" else None
        self._tasks, self._options = tasks, options
        self._draws = [
            Draws(len(task.train), options.batch, [options.seed, number]) for number, task in enumerate(tasks)
        ]

    def step(self, step: int) -> tuple[list[float], int]:
        """Take a step (from 0).

        Returns:
            D_T of each task's mini-batch before the step, nats; places that were learned.
        """
        options = self._options
        gradients, losses, places = GradientSum(options.objective, options.normalize), list[float](), 0
        for task, draws in zip(self._tasks, self._draws, strict=True):
            batch = batch_of([task.train[place] for place in draws.of(step)], self._pairing is not None)
            loss_of, entropy = self._loss(batch)
            loss, gradient = value_and_grad(self._model, loss_of)()
            mx.eval(loss, entropy, gradient)
            losses.append(_number(loss))
            gradients.add(losses[-1] - _number(entropy), gradient)
            places += len(batch.rows)
        clipped, _ = optim.clip_grad_norm(gradients.total(), _LONGEST_GRADIENT)  # type: ignore[no-untyped-call]
        self._optimizer.learning_rate = mx.array(rate_at(step, options.steps, options.rate))
        self._optimizer.update(self._model, clipped)
        mx.eval(self._model.parameters(), self._optimizer.state)
        return losses, places

    def _loss(self, batch: Batch) -> tuple[Any, mx.array]:
        """Return the function whose value is D_T, and what of it is no distance: p's own entropy, or nothing."""
        ids, rows, places = mx.array(batch.draft), mx.array(batch.rows), mx.array(batch.places)
        if self._pairing is None:
            return partial(cross_entropy, self._model, ids, rows, places), mx.array(0.0)
        log_p = log_p_of(self._target, self._pairing, batch)
        loss = partial(distribution_cross_entropy, self._model, self._pairing, ids, rows, places, log_p)
        return loss, entropy_of(log_p) if self._options.weigh_by == "kl" else mx.array(0.0)


def _number(value: mx.array) -> float:
    number: Any = value.item()
    return float(number)
