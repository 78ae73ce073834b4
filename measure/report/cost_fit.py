"""The published cost model, fitted to the speed-ups of a run.

    speedup = (1 + alpha k) / ((k + 1) r + 1 + beta k^2)

is linear in its constants when solved for the cost: (1 + alpha k) / speedup - 1 = (k + 1) r + beta k^2.

Source: paper on cross-family speculative decoding for Polish, section 6.2, equations 4 to 6.
"""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from spectool.measure.intervals import Estimate, interval, mean_interval
from spectool.runtime.draft_length.cost_model import CostModel


class Observation(NamedTuple):
    """What one prompt says about the cost of a cycle.

    Attributes:
        alpha: Acceptance rate.
        k: Draft length.
        speedup: Against plain decoding.
        draft_step: Time of a draft step as measured, in plain steps: the drafter's time over k + 1 steps a cycle.
    """

    alpha: float
    k: int
    speedup: float
    draft_step: float

    @property
    def cost(self) -> float:
        """Time of a cycle beyond a plain pass, in plain passes, as the model sees it."""
        return (1 + self.alpha * self.k) / self.speedup - 1


class CostFit(NamedTuple):
    """The model's constants.

    Attributes:
        r: A draft step, in plain steps, with its 95% interval.
        beta: What grows with the square of the draft length, likewise.
        timed: Whether r is the drafter's own time, one draft length being too few to tell r and beta apart.
    """

    r: Estimate
    beta: Estimate
    timed: bool

    @property
    def model(self) -> CostModel:
        """The model with these constants."""
        return CostModel(self.r.value, self.beta.value)


def fit_cost(observations: Sequence[Observation]) -> CostFit | None:
    """Fit r and beta by ordinary least squares; observations are taken as independent.

    Returns:
        None for fewer than 3 observations.
    """
    n = len(observations)
    if n < 3:
        return None
    k = np.array([seen.k for seen in observations], dtype=np.float64)
    cost = np.array([seen.cost for seen in observations])
    if len(set(k.tolist())) == 1:
        r = mean_interval([seen.draft_step for seen in observations])
        steps = np.array([seen.draft_step for seen in observations])
        return CostFit(r, mean_interval(((cost - (k + 1) * steps) / k**2).tolist()), timed=True)
    columns = np.stack([k + 1, k**2], axis=1)
    inverse = np.linalg.inv(columns.T @ columns)
    constants = inverse @ columns.T @ cost
    variance = float(np.sum((cost - columns @ constants) ** 2)) / (n - 2)
    r, beta = (
        interval(float(constants[place]), sqrt(variance * inverse[place, place]), n - 2, n) for place in range(2)
    )
    return CostFit(r, beta, timed=False)
