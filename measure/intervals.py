"""Means, straight lines and break-even points, each with its 95% interval.

Means are over prompts, with Student's t interval. At the handful of prompts that a run has, it covers the true
mean more often than the percentile bootstrap does, also for skewed values (``tests/measure/report/test_statistics.py``
measures both).
"""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.95


class Estimate(NamedTuple):
    """A figure and where it may lie.

    Attributes:
        value: The figure.
        low: Lower end of its interval; None where too little was measured for one.
        high: Upper end; None likewise.
        n: Observations.
    """

    value: float
    low: float | None
    high: float | None
    n: int


class Line(NamedTuple):
    """A least-squares line y = a + b x.

    Attributes:
        a: Intercept.
        b: Slope.
        covariance: Of the two: var(a), var(b), cov(a, b).
        r_squared: Share of the variance of y that it explains.
        n: Points.
    """

    a: float
    b: float
    covariance: tuple[float, float, float]
    r_squared: float
    n: int


class BreakEven(NamedTuple):
    """The acceptance rate from which on drafting pays.

    Attributes:
        alpha: The rate; above 1 it cannot be reached.
        reach: Half the width of its interval.
        line: The line that it lies on.
        baseline: Tokens per second of plain decoding.
    """

    alpha: float
    reach: float
    line: Line
    baseline: float


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Estimate:
    """Return the mean of ``values`` and Student's t interval for it, values taken as independent.

    >>> mean_interval([1.0, 2.0, 3.0]).value, mean_interval([5.0])
    (2.0, Estimate(value=5.0, low=None, high=None, n=1))
    """
    array = np.asarray(values, dtype=np.float64)
    mean, n = float(array.mean()), len(array)
    if n < 2:
        return Estimate(mean, None, None, n)
    return interval(mean, float(array.std(ddof=1)) / sqrt(n), n - 1, n, level)


def interval(value: float, error: float, freedom: int, n: int, level: float = LEVEL) -> Estimate:
    """Return ``value`` with Student's t interval of a standard error at some degrees of freedom."""
    reach = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    return Estimate(value, value - reach, value + reach, n)


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line | None:
    """Fit a straight line by ordinary least squares; None for fewer than 3 points or equal ``x``."""
    if len(x) < 3 or min(x) == max(x):
        return None
    found = stats.linregress(x, y)
    variance = float(found.stderr) ** 2
    covariance = (float(found.intercept_stderr) ** 2, variance, -float(np.mean(x)) * variance)
    return Line(float(found.intercept), float(found.slope), covariance, float(found.rvalue) ** 2, len(x))


def break_even(alpha: Sequence[float], rates: Sequence[float], plain: Sequence[float]) -> BreakEven | None:
    """Return where the line through tokens per second over acceptance rate reaches plain decoding's.

    Its interval is by the delta method, with Student's t at n - 2 degrees of freedom. Plain decoding's mean is
    itself measured: its error adds to the line's, as if independent, which on prompts that are slow in every way
    makes the interval too wide rather than too narrow.

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
    of_plain = float(np.var(plain, ddof=1)) / len(plain)
    error = sqrt(max(0.0, of_a + at * at * of_b + 2 * at * of_both + of_plain)) / line.b
    return BreakEven(at, float(stats.t.ppf((1 + LEVEL) / 2, line.n - 2)) * error, line, baseline)
