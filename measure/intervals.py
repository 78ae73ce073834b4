"""Means, speed-ups, straight lines and break-even points, each with its 95% interval.

The interval of a mean comes from the means of subsets of the values. Where the values are spread symmetrically around
the true mean, it is equally likely to lie between any two neighbouring ones of these. So leaving 2.5% of them out to
either side makes an interval of 95%. The noise may have heavy tails, or be different from prompt to prompt. Of many
values, a set of subsets is taken that has the symmetric difference of any two of them, which is all that this needs.
``tests/measure/report/test_statistics.py`` measures how often the intervals are right.

Speed-ups are averaged as logarithms (`geometric_mean`). Twice as fast and half as fast cancel out, and with equal
speeds the logarithms are spread symmetrically around 0. Their arithmetic mean is above 1 then, by the noise's variance.

Source: J. A. Hartigan 1969, Using subsample values as typical values, JASA 64, theorems 1 and 2.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LEVEL = 0.95
_DIMENSIONS = 13  # there are 2 ** 13 - 1 subsets, or all of them where that is less


class Estimate(NamedTuple):
    """A figure and where it may lie."""

    value: float  # the figure
    low: float | None  # lower end of its interval; None where too little was measured for one
    high: float | None  # upper end; None likewise
    n: int  # observations

    def __format__(self, spec: str) -> str:
        """Spell the figure and half the width of its interval.

        >>> f"{Estimate(1.064, 1.012, 1.116, 9):.2f}", f"{Estimate(0.41, 0.36, 0.46, 9):.0%}"
        ('1.06 ± 0.05', '41 ± 5%')
        >>> f"{Estimate(1.06, None, None, 1):.2f}"
        '1.06'
        """
        value = format(self.value, spec)
        if self.low is None or self.high is None:
            return value
        return f"{value.removesuffix('%')} ± {(self.high - self.low) / 2:{spec}}"

    @property
    def ends(self) -> str:
        """The ends of the interval, or why there is none.

        >>> Estimate(1.06, 0.9, 1.22, 8).ends, Estimate(1.06, None, None, 2).ends
        ('0.90 to 1.22', 'too few for an interval')
        """
        return "too few for an interval" if self.low is None else f"{self.low:.2f} to {self.high:.2f}"


class Line(NamedTuple):
    """A least-squares line y = a + b x."""

    a: float  # intercept
    b: float  # slope
    covariance: tuple[float, float, float]  # of the two: var(a), var(b), cov(a, b)
    r_squared: float  # share of the variance of y that it explains
    n: int  # points


class BreakEven(NamedTuple):
    """The acceptance rate from which on drafting pays."""

    alpha: float  # the rate; above 1 it cannot be reached
    reach: float  # half the width of its interval
    line: Line  # the line that it lies on
    baseline: float  # tokens per second of plain decoding

    def __str__(self) -> str:
        """Spell the rate, half the width of its interval, and the share of variance that the line explains.

        >>> line = Line(9.0, 12.0, (0.0, 0.0, 0.0), 0.914, 20)
        >>> str(BreakEven(0.408, 0.053, line, 14.8)), str(BreakEven(1.394, 0.4, line, 14.8))
        ('41 ± 5% (R² 0.91)', 'not reachable: 139 ± 40% (R² 0.91)')
        >>> str(BreakEven(0.5, 1.2, line, 14.8))
        'unclear (R² 0.91)'
        """
        explained = f"(R² {self.line.r_squared:.2f})"
        if self.reach > 1:
            return f"unclear {explained}"
        spelt = f"{100 * self.alpha:.0f} ± {self.reach:.0%} {explained}"
        return spelt if self.alpha <= 1 else f"not reachable: {spelt}"


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Estimate:
    """Return the mean of ``values``, which are taken as independent, and its interval.

    It has no interval where there are too few values for ``level``.

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
    """Return the ends of the interval of the mean of each row of ``values``, shape [2, rows]; None for too few."""
    subsets = _subsets(values.shape[1])
    outside = int((len(subsets) + 1) * (1 - level) / 2 + 1e-9)  # means of subsets beyond either end, and at it
    if not outside:
        return None
    ends = outside - 1, len(subsets) - outside
    return np.partition(subsets @ values.T, ends, axis=0)[list(ends)]


def speedup_interval(ratios: Sequence[float], level: float = LEVEL) -> Estimate:
    """Return the geometric mean of speed-ups and its interval.

    >>> f"{speedup_interval([2.0, 0.5, 2.0, 0.5, 2.0, 0.5]).value:.3f}"
    '1.000'
    """
    found = mean_interval(np.log(np.asarray(ratios, dtype=np.float64)).tolist(), level)
    low, high = (None if end is None else float(np.exp(end)) for end in (found.low, found.high))
    return Estimate(float(np.exp(found.value)), low, high, found.n)


def geometric_mean(ratios: Sequence[float]) -> float:
    """Return the mean of speed-ups without an interval."""
    return float(np.exp(np.log(np.asarray(ratios, dtype=np.float64)).mean()))


@lru_cache(maxsize=4)
def _subsets(n: int) -> NDArray[np.float64]:
    """Return the weights of ``n`` values in the means of subsets, shape [subsets, n]: a linear code's words, scaled."""
    basis = np.arange(min(n, _DIMENSIONS))
    # A value is in the subsets that share an odd number of bits with its own: the first values have one bit each.
    more = np.random.default_rng(0).permutation(np.arange(1, max(n, 1 << _DIMENSIONS)))
    own = np.concatenate([1 << basis, more[: n - len(basis)] % (1 << _DIMENSIONS)])
    numbers = np.arange(1, 1 << len(basis))
    members = (numbers[:, None] >> basis & 1) @ (own >> basis[:, None] & 1) % 2
    weights: NDArray[np.float64] = members / members.sum(axis=1, keepdims=True)
    return weights


def interval(value: float, error: float, freedom: int, n: int, level: float = LEVEL) -> Estimate:
    """Return ``value`` with Student's t interval of a standard error at some degrees of freedom."""
    half = reach(error, freedom, level)
    return Estimate(value, value - half, value + half, n)


def reach(error: float, freedom: int, level: float = LEVEL) -> float:
    """Return half the width of Student's t interval of a standard error at some degrees of freedom."""
    return float(stats.t.ppf((1 + level) / 2, freedom)) * error


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line | None:
    """Fit a straight line by ordinary least squares; None for fewer than 3 points or equal ``x``."""
    if len(x) < 3 or min(x) == max(x):
        return None
    found = stats.linregress(x, y)
    variance = found.stderr**2
    covariance = (found.intercept_stderr**2, variance, -np.mean(x) * variance)
    return Line(found.intercept, found.slope, covariance, found.rvalue**2, len(x))


def break_even(alpha: Sequence[float], rates: Sequence[float], plain: Sequence[float]) -> BreakEven | None:
    """Return where the line through tokens per second over acceptance rate reaches plain decoding's.

    Its interval is by the delta method, with Student's t at n - 2 degrees of freedom. Plain decoding's mean is itself
    measured, and its error adds to the line's as if independent. On prompts that are slow for all this makes the
    interval too wide rather than too narrow.

    Args:
        alpha: Acceptance rate of every prompt, ``[n]``.
        rates: Tokens per second of the same, ``[n]``.
        plain: Tokens per second of plain decoding on the same, ``[n]``.

    Returns:
        None where it cannot be told: fewer than 3 prompts, equal rates of acceptance, or a line that does not rise.

    Source: paper on cross-family speculative decoding for Polish, section 5.4, equations 1 and 2.
    """
    line = fit_line(alpha, rates)
    if line is None or line.b <= 0:
        return None
    baseline = float(np.mean(plain))
    at = (baseline - line.a) / line.b
    of_a, of_b, of_both = line.covariance
    error = sqrt(max(0.0, of_a + at * at * of_b + 2 * at * of_both + stats.sem(plain) ** 2)) / line.b
    return BreakEven(at, reach(error, line.n - 2), line, baseline)
