"""Means, straight lines and break-even points, each with its 95% interval.

Means are over prompts, with Student's t interval. At the handful of prompts that a run has, it covers the true mean
more often than the percentile bootstrap does, also for skewed values. ``tests/measure/report/test_statistics.py``
measures both. From fewer than `FEWEST` observations it is wider than any use, so that none is given.
"""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.95
FEWEST = 5  # observations of an interval: from 2 it is 12.7 standard errors wide to either side, from 5 it is 2.8
ENOUGH = 20  # observations to ask for


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
        return value if self.high is None else f"{value.removesuffix('%')} ± {self.high - self.value:{spec}}"

    @property
    def ends(self) -> str:
        """The ends of the interval of what cannot be negative, such as a speed-up; why there are none elsewhere.

        >>> Estimate(1.06, -0.1, 2.22, 5).ends, Estimate(1.06, None, None, 2).ends
        ('0.00 to 2.22', 'too few for an interval')
        """
        if self.low is None:
            return "too few for an interval"
        return f"{max(0.0, self.low):.2f} to {self.high:.2f}"


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
    """Return the mean of ``values`` and Student's t interval for it, values taken as independent.

    >>> mean_interval([1.0, 2.0, 3.0])
    Estimate(value=2.0, low=None, high=None, n=3)
    """
    array = np.asarray(values, dtype=np.float64)
    mean, n = float(array.mean()), len(array)
    if n < FEWEST:
        return Estimate(mean, None, None, n)
    return interval(mean, float(stats.sem(array)), n - 1, n, level)


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
