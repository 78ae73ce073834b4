"""Least-squares lines, Student's t intervals, and the acceptance rate from which drafting pays."""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy import stats

from spectool.measure.intervals import LEVEL, Estimate


class Line(NamedTuple):
    """A least-squares line y = a + b x."""

    a: float
    b: float
    covariance: tuple[float, float, float]  # var(a), var(b), cov(a, b)
    r_squared: float  # share of the variance of y that it explains
    n: int  # points


class BreakEven(NamedTuple):
    """The acceptance rate from which drafting pays."""

    alpha: float  # above 1 it cannot be reached
    reach: float  # half the width of its interval
    line: Line  # tokens per second over acceptance
    baseline: float  # tokens per second of plain decoding

    def __str__(self) -> str:
        """The rate with half the width of its interval, and the share of variance that the line explains.

        >>> line = Line(9.0, 12.0, (0.0, 0.0, 0.0), 0.914, 20)
        >>> str(BreakEven(0.408, 0.053, line, 14.8)), str(BreakEven(1.394, 0.4, line, 14.8))
        ('41 ± 5% (R² 0.91)', 'not reachable: 139 ± 40% (R² 0.91)')
        >>> str(BreakEven(0.5, 1.2, line, 14.8))
        'unclear (R² 0.91)'
        """
        explained = f"(R² {self.line.r_squared:.2f})"
        if self.reach > 1:
            return f"unclear {explained}"
        rate = f"{100 * self.alpha:.0f} ± {self.reach:.0%} {explained}"
        return rate if self.alpha <= 1 else f"not reachable: {rate}"


def student_interval(value: float, error: float, freedom: int, n: int) -> Estimate:
    """``value`` with Student's 95% interval of a standard error at some degrees of freedom."""
    half = reach(error, freedom)
    return Estimate(value, value - half, value + half, n)


def reach(error: float, freedom: int, level: float = LEVEL) -> float:
    """Half the width of Student's t interval of a standard error at some degrees of freedom."""
    return float(stats.t.ppf((1 + level) / 2, freedom)) * error


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line | None:
    """The line through points by ordinary least squares; None for fewer than 3 points or equal ``x``."""
    if len(x) < 3 or min(x) == max(x):
        return None
    found = stats.linregress(x, y)
    variance = found.stderr**2
    covariance = (found.intercept_stderr**2, variance, -np.mean(x) * variance)
    return Line(found.intercept, found.slope, covariance, found.rvalue**2, len(x))


def break_even(alpha: Sequence[float], rates: Sequence[float], plain: Sequence[float]) -> BreakEven | None:
    """Where the line through tokens per second over acceptance reaches plain decoding.

    Its interval is by the delta method, with Student's t at n - 2 degrees of freedom. The error of plain decoding's
    mean adds to the line's as if independent, so prompts that are slow for both make the interval too wide rather than
    too narrow.

    Args:
        alpha: Acceptance rate of every prompt, ``[n]``.
        rates: Tokens per second on these prompts, ``[n]``.
        plain: Tokens per second of plain decoding on these prompts, ``[n]``.

    Returns:
        None for fewer than 3 prompts, equal acceptance rates, or a line that does not rise.

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
