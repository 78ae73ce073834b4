"""Means and speed-ups with their 95% intervals, and how much a run has to measure to have one.

The interval of a mean is made of the means of subsets of the values. If the values are spread symmetrically around the
true mean, it is equally likely to lie between any two neighbouring ones of these subset means, so leaving out 2.5% of
them on each side gives an interval of 95% (J. A. Hartigan 1969, Using subsample values as typical values, JASA 64).
Nothing else is assumed: the noise may have heavy tails, or differ from prompt to prompt. For many values, random
subsets are used.

Speed-ups are averaged as logarithms, so that twice as fast and half as fast cancel out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
LEAST = 8  # tokens: the speed of a shorter output is chance
FEWEST = 6  # prompts of an interval of 95%: 5 have 31 subsets, and no subset mean leaves out at most 2.5%
ENOUGH_PROMPTS = 20  # prompts to ask for
_DIMENSIONS = 13  # values of which all subsets are taken; of more, as many random subsets


class Estimate(NamedTuple):
    """A mean and its interval."""

    value: float
    low: float | None  # ends of the interval; None if there are too few values for one
    high: float | None
    n: int  # values


def interval_ends(values: NDArray[np.float64], level: float = LEVEL) -> NDArray[np.float64] | None:
    """The ends of the interval of the mean of each row of ``values``, shape [2, rows]; None if there are too few."""
    subsets = _subsets(values.shape[1])
    outside = int((len(subsets) + 1) * (1 - level) / 2 + 1e-9)  # subset means at or beyond either end
    if not outside:
        return None
    ends = outside - 1, len(subsets) - outside
    return np.partition(subsets @ values.T, ends, axis=0)[list(ends)]


def speedup_interval(ratios: Sequence[float], level: float = LEVEL) -> Estimate:
    """The geometric mean of speed-ups with its interval."""
    logs = np.log(np.asarray(ratios, dtype=np.float64))
    ends = interval_ends(logs[None], level)
    low, high = (None, None) if ends is None else np.exp(ends[:, 0]).tolist()
    return Estimate(float(np.exp(logs.mean())), low, high, len(logs))


def _subsets(n: int) -> NDArray[np.float64]:
    """Weights of ``n`` values in the means of all of their subsets, or of random ones, shape [subsets, n]."""
    numbers = np.arange(1, 1 << min(n, _DIMENSIONS))
    members = numbers[:, None] >> np.arange(n) & 1
    if n > _DIMENSIONS:
        members = np.random.default_rng(0).integers(0, 2, (len(numbers), n))
        members = members[members.any(axis=1)]
    weights: NDArray[np.float64] = members / members.sum(axis=1, keepdims=True)
    return weights
