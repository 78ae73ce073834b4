"""Means and speed-ups with their 95% intervals, and how much a run has to measure to have one.

The interval of a mean is made of the means of subsets of the values. If the values are spread symmetrically around the
true mean, it is equally likely to lie between any two neighbouring ones of these subset means, so leaving out 2.5% of
them on each side gives an interval of 95%. Nothing else is assumed: the noise may have heavy tails, or differ from
prompt to prompt. For many values only some subsets are used, a set that is closed under symmetric difference, which is
all that the theorem needs. ``tests/measure/test_intervals.py`` measures how often the intervals are right.

Speed-ups are averaged as logarithms, so that twice as fast and half as fast cancel out. With equal speeds the
logarithms are spread symmetrically around 0, while the arithmetic mean would be above 1 because of the noise.

Source: J. A. Hartigan 1969, Using subsample values as typical values, JASA 64, theorems 1 and 2.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
LEAST = 8  # tokens: the speed of a shorter output is chance
FEWEST = 6  # prompts of an interval of 95%: 5 have 31 subsets, and no subset mean leaves out at most 2.5%
ENOUGH_PROMPTS = 20  # prompts to ask for
_TOKENS = 128  # after each prompt, to ask for
_DIMENSIONS = 13  # there are 2 ** 13 - 1 subsets, or all of them if that is less


def too_short(prompts: int) -> str:
    """What to run where this many prompts have outputs of `LEAST` tokens or more; empty if they are enough."""
    if prompts >= FEWEST:
        return ""
    return (
        f"this run is too short to tell whether drafting pays: {prompts} prompt{'s' * (prompts != 1)} with {LEAST} "
        f"tokens or more of real text in every output, and an interval needs {FEWEST}. Run `spectool bench` again with "
        f"another -o, --count {ENOUGH_PROMPTS} and --tokens {_TOKENS}, and --ignore-eos if the model ends answers early"
    )


class Estimate(NamedTuple):
    """A mean and its interval."""

    value: float
    low: float | None  # ends of the interval; None if there are too few values for one
    high: float | None
    n: int  # values

    @property
    def ends(self) -> str:
        """The ends of the interval, or why there is none.

        >>> Estimate(1.06, 0.9, 1.22, 8).ends, Estimate(1.06, None, None, 2).ends
        ('0.90 to 1.22', 'too few for an interval')
        """
        return "too few for an interval" if self.low is None else f"{self.low:.2f} to {self.high:.2f}"


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Estimate:
    """The mean of independent values with its interval, without one if there are too few values for ``level``.

    >>> mean_interval([1.0, 2.0, 3.0])
    Estimate(value=2.0, low=None, high=None, n=3)
    >>> mean_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    Estimate(value=3.5, low=1.0, high=6.0, n=6)
    """
    array = np.asarray(values, dtype=np.float64)
    ends = interval_ends(array[None], level)
    low, high = (None, None) if ends is None else ends[:, 0].tolist()
    return Estimate(float(array.mean()), low, high, len(array))


def interval_ends(values: NDArray[np.float64], level: float = LEVEL) -> NDArray[np.float64] | None:
    """The ends of the interval of the mean of each row of ``values``, shape [2, rows]; None if there are too few."""
    subsets = _subsets(values.shape[1])
    outside = int((len(subsets) + 1) * (1 - level) / 2 + 1e-9)  # subset means at or beyond either end
    if not outside:
        return None
    ends = outside - 1, len(subsets) - outside
    return np.partition(subsets @ values.T, ends, axis=0)[list(ends)]


def speedup_interval(ratios: Sequence[float], level: float = LEVEL) -> Estimate:
    """The geometric mean of speed-ups with its interval.

    >>> f"{speedup_interval([2.0, 0.5, 2.0, 0.5, 2.0, 0.5]).value:.3f}"
    '1.000'
    """
    found = mean_interval(np.log(np.asarray(ratios, dtype=np.float64)).tolist(), level)
    low, high = (None if end is None else float(np.exp(end)) for end in (found.low, found.high))
    return Estimate(float(np.exp(found.value)), low, high, found.n)


@lru_cache(maxsize=4)
def _subsets(n: int) -> NDArray[np.float64]:
    """Weights of ``n`` values in the means of subsets, shape [subsets, n]: the words of a linear code, scaled."""
    basis = np.arange(min(n, _DIMENSIONS))
    # A subset holds the values whose own number shares an odd number of bits with it; the first values have one bit.
    more = np.random.default_rng(0).permutation(np.arange(1, max(n, 1 << _DIMENSIONS)))
    own = np.concatenate([1 << basis, more[: n - len(basis)] % (1 << _DIMENSIONS)])
    numbers = np.arange(1, 1 << len(basis))
    members = (numbers[:, None] >> basis & 1) @ (own >> basis[:, None] & 1) % 2
    weights: NDArray[np.float64] = members / members.sum(axis=1, keepdims=True)
    return weights
