"""Steps of training: AdamW, a rate that rises and falls with the step, clipped gradients.

Several processes (``mlx.launch``) share a step: each computes the gradients of its rows, and all
apply the average.
"""

import math
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim
import numpy as np
from mlx.nn.utils import average_gradients, value_and_grad

from spectool.build.training.feed import Feed
from spectool.build.training.sampled_softmax import choose_classes, loss_of
from spectool.build.training.vocabulary_classes import Classes
from spectool.runtime.host.training import Model

_WARM_UP = 0.03  # of the steps
_LEAST = 0.02  # of the peak rate, at the end
_LONGEST_GRADIENT = 1.0


def rate_at(step: int, steps: int, peak: float) -> float:
    """Return the learning rate of a step (from 0): linear warm-up, then half a cosine down to a fiftieth."""
    warm_up = max(1, round(steps * _WARM_UP))
    if step < warm_up:
        return peak * (step + 1) / warm_up
    fall = 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))
    return peak * (_LEAST + (1 - _LEAST) * fall)


def make_optimizer(model: Any) -> optim.AdamW:
    """Return the optimizer of a model, with a state for each of its weights."""
    optimizer = optim.AdamW(1e-3, betas=[0.9, 0.98], weight_decay=0.05)
    optimizer.init(model.trainable_parameters())
    return optimizer


class Trainer:
    """Takes one step after another, in any process the same ones."""

    def __init__(
        self,
        model: Model,
        optimizer: optim.AdamW,
        classes: Classes,
        feed: Feed,
        steps: int,
        peak: float,
        softmax_classes: int,
        seed: int,
        group: mx.distributed.Group,
    ) -> None:
        """Get ready; the model and the optimizer are changed in place.

        Args:
            model: A Llama model over classes.
            optimizer: From `make_optimizer`.
            classes: The classes.
            feed: Ids to train on.
            steps: Steps of the whole run.
            peak: Highest learning rate.
            softmax_classes: Classes in a step's softmax, 0 for all.
            seed: Seeds their choice.
            group: The processes that share a step.
        """
        self._model, self._optimizer, self._classes, self._feed = model, optimizer, classes, feed
        self._steps, self._peak, self._softmax_classes, self._seed = steps, peak, softmax_classes, seed
        self._group = group
        self._loss_and_gradients = value_and_grad(model, partial(loss_of, model))
        self._state = [model.state, optimizer.state]

        @partial(mx.compile, inputs=self._state, outputs=self._state)
        def update(gradients: dict[str, Any]) -> None:
            clipped, _ = optim.clip_grad_norm(gradients, _LONGEST_GRADIENT)  # type: ignore[no-untyped-call]
            optimizer.update(model, clipped)

        self._update = update

    def step(self, step: int, stop: bool = False) -> tuple[float, bool]:
        """Take a step (from 0).

        Args:
            step: Its number.
            stop: Whether this process wants to end after it.

        Returns:
            Mean loss of all processes, nats per token; whether any of them wants to end.
        """
        rank, size = self._group.rank(), self._group.size()
        rows = self._classes.of_id[np.split(self._feed.rows(step), size)[rank]]
        rng = np.random.default_rng([self._seed, step, rank])
        chosen, offsets = choose_classes(rows[:, 1:].reshape(-1), self._classes, self._softmax_classes, rng)
        self._optimizer.learning_rate = mx.array(rate_at(step, self._steps, self._peak))
        loss, gradients = self._loss_and_gradients(mx.array(rows), mx.array(chosen), mx.array(offsets))
        self._update(average_gradients(gradients, self._group))
        mx.eval(loss, self._state)
        if size == 1:
            return float(loss.item()), stop
        mine = mx.stack([loss, mx.array(float(stop))])
        total, wishes = np.array(mx.distributed.all_sum(mine, group=self._group)).tolist()
        return total / size, wishes > 0


def any_of(group: mx.distributed.Group, value: bool) -> bool:
    """Wait for all processes; return whether any of them says so."""
    if group.size() == 1:
        return value
    return bool(mx.distributed.all_max(mx.array(float(value)), group=group).item())
