"""AdamW with clipped gradients, and a rate that rises and falls with the step."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim

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
