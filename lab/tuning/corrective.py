"""How the gradients of several tasks become one: their mean, or s-CDF's correction of the slow ones.

s-CDF (stochastic corrective drafter fine-tuning; "Disparate Impacts of Speculative Decoding", Eq. 9 and
Algorithm 1) weighs the gradient of a task by its excess over the best one,

    (1/m) sum_T (D_T - D_min) grad D_T,

which is the gradient of (1/m) sum_T (D_T - c)^2 / 2 with c = D_min held constant. The best task has no weight.
D_T is the cross-entropy, which contains the target's own entropy; that differs between languages and does not depend on
the draft.
"""

from collections.abc import Sequence
from typing import Any

from mlx.utils import tree_map

from spectool.lab.training.options import Objective


def unfairness(divergences: Sequence[float]) -> float:
    """U = (1/m) sum (D_T - D_min)^2 (Definition 1), in nats squared."""
    best = min(divergences)
    return sum((divergence - best) ** 2 for divergence in divergences) / len(divergences)


class GradientSum:
    """The weighted sum of the tasks' gradients, collected task by task in the memory of two gradients.

    The best divergence is known only at the end, so it keeps sum (D_T - c) g_T for the smallest D_T so far, c, and
    sum g_T. When c falls, it adds the difference times the latter. All weights are positive, so nothing cancels.

    Attributes:
        divergences: D_T of the tasks so far, nats.
    """

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self.divergences: list[float] = []
        self._plain: Any = None  # sum g_T
        self._excess: Any = None  # sum (D_T - c) g_T

    def add(self, divergence: float, gradient: Any) -> None:
        """Add a task: its D_T in nats, and the gradient of D_T, a tree of arrays."""
        best = min(self.divergences, default=divergence)
        self.divergences.append(divergence)
        if self._objective == "s-cdf":
            if self._excess is None:
                self._excess = tree_map(lambda g: g * 0, gradient)
            elif divergence < best:
                self._excess = tree_map(lambda e, g: e + (best - divergence) * g, self._excess, self._plain)
            else:
                self._excess = tree_map(lambda e, g: e + (divergence - best) * g, self._excess, gradient)
        self._plain = gradient if self._plain is None else tree_map(lambda a, b: a + b, self._plain, gradient)

    def total(self) -> Any:
        """The gradients' mean, or with ``s-cdf`` (1/m) sum (D_T - D_min) g_T."""
        scale = 1 / len(self.divergences)
        return tree_map(lambda g: g * scale, self._plain if self._objective == "mean" else self._excess)
