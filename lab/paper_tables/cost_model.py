"""What drafting costs and from which acceptance rate it pays: the published formulas, and how they are fitted to a run.

    speedup(alpha, k) = (1 + alpha k) / ((k + 1) r + 1 + beta k^2)      published break-even: r + beta k

``r`` is the time of a draft step and ``beta k^2`` everything else that grows with the draft length, both in plain
passes of the target. Solved for its denominator, the model is linear in r and beta. Setting the speed-up to 1 gives
the exact break-even, r (k + 1) / k + beta k.

Source: paper on cross-family speculative decoding for Polish, sections 5.4 and 6.2, equations 1 to 6, and Table 7.
"""

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spectool.measure.intervals import LEVEL, Estimate, interval_ends

if TYPE_CHECKING:
    from spectool.lab.paper_tables.trials import Frame


def mean_interval(values: Sequence[float]) -> Estimate:
    """The mean of independent values with its interval, without one if there are too few values.

    >>> mean_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    Estimate(value=3.5, low=1.0, high=6.0, n=6)
    """
    array = np.asarray(values, dtype=np.float64)
    ends = interval_ends(array[None])
    low, high = (None, None) if ends is None else ends[:, 0].tolist()
    return Estimate(float(array.mean()), low, high, len(array))


class CostModel(NamedTuple):
    """The two constants of the model."""

    r: float  # seconds of a draft step / seconds of a plain pass
    beta: float  # overhead that grows with the square of the draft length, in plain passes

    def cost(self, k: int) -> float:
        """Time of a cycle that drafts ``k`` tokens, in plain passes."""
        return (k + 1) * self.r + 1 + self.beta * k * k

    def speedup(self, alpha: float, k: int) -> float:
        """Speed compared with plain decoding at acceptance rate ``alpha`` and draft length ``k``.

        >>> round(CostModel(0.071, 0.19).speedup(0.446, 2), 2)
        0.96
        """
        return (1 + alpha * k) / self.cost(k) if k else 1.0

    def break_even(self, k: int) -> float:
        """The published acceptance rate from which drafting ``k`` tokens pays.

        >>> round(CostModel(0.071, 0.19).break_even(2), 3)
        0.451
        """
        return self.r + self.beta * k

    def exact_break_even(self, k: int) -> float:
        """The acceptance rate at which `speedup` is 1.

        >>> round(CostModel(0.071, 0.19).exact_break_even(2), 4)
        0.4865
        """
        return (self.cost(k) - 1) / k


class CostFit(NamedTuple):
    """Constants of the model that were fitted to a run, with their 95% intervals."""

    r: Estimate
    beta: Estimate
    timed: bool  # r is the drafter's own time, because a single draft length cannot tell r and beta apart

    @property
    def model(self) -> CostModel:
        """The model with these constants."""
        return CostModel(self.r.value, self.beta.value)


def fit_cost(trials: "Frame") -> CostFit | None:
    """The model fitted by least squares, with prompts taken as independent; None for fewer than 3 trials.

    ``trials`` come from `fixed_lengths`; the columns k, acceptance, speedup and draft_step are used.
    """
    from scipy import stats  # not above: the formulas need neither SciPy nor pandas
    from scipy.optimize import curve_fit

    n = len(trials)
    if n < 3:
        return None
    k = trials.k.to_numpy(dtype=np.float64)
    cost = ((1 + trials.acceptance * trials.k) / trials.speedup - 1).to_numpy(dtype=np.float64)
    if trials.k.nunique() == 1:
        beta = (cost - (k + 1) * trials.draft_step) / k**2
        return CostFit(mean_interval(trials.draft_step), mean_interval(beta), timed=True)
    constants, covariance = curve_fit(lambda k, r, beta: (k + 1) * r + beta * k**2, k, cost)
    half = stats.t.ppf((1 + LEVEL) / 2, n - 2) * np.sqrt(np.diag(covariance))
    r, beta = (Estimate(of, of - reach, of + reach, n) for of, reach in zip(constants, half, strict=True))
    return CostFit(r, beta, timed=False)


def fixed_lengths(trials: "Frame") -> "Frame":
    """Trials of fixed draft lengths that proposed something, with ``draft_step``, the drafter's time in plain steps."""
    some = trials[trials.k.notna() & trials.acceptance.notna()]
    draft_step = some.draft_seconds / (some.passes * (some.k + 1)) * some.plain_rate
    return some.assign(draft_step=draft_step)


class BreakEven(NamedTuple):
    """The acceptance rate from which drafting pays, where a line through tokens per second reaches plain decoding."""

    alpha: float  # above 1 it cannot be reached
    reach: float  # half the width of its 95% interval
    r_squared: float  # share of the variance of tokens per second that the line explains

    def __str__(self) -> str:
        """The rate with half the width of its interval, and R².

        >>> str(BreakEven(0.408, 0.053, 0.914)), str(BreakEven(1.394, 0.4, 0.914))
        ('41 ± 5% (R² 0.91)', 'not reachable: 139 ± 40% (R² 0.91)')
        >>> str(BreakEven(0.5, 1.2, 0.914))
        'unclear (R² 0.91)'
        """
        explained = f"(R² {self.r_squared:.2f})"
        if self.reach > 1:
            return f"unclear {explained}"
        rate = f"{100 * self.alpha:.0f} ± {self.reach:.0%} {explained}"
        return rate if self.alpha <= 1 else f"not reachable: {rate}"


def fitted_break_even(alpha: Sequence[float], rates: Sequence[float], plain: Sequence[float]) -> BreakEven | None:
    """Where the least-squares line through tokens per second over acceptance reaches plain decoding.

    The interval comes from the delta method, with Student's t at n - 2 degrees of freedom. The error of the mean of
    plain decoding is added as if it were independent of the line's, so prompts that are slow for both make the
    interval too wide rather than too narrow.

    Args:
        alpha: Acceptance rate of every prompt, ``[n]``.
        rates: Tokens per second on these prompts, ``[n]``.
        plain: Tokens per second of plain decoding on these prompts, ``[n]``.

    Returns:
        None for fewer than 3 prompts, equal acceptance rates, or a line that does not rise.

    Source: section 5.4, equations 1 and 2.
    """
    if len(alpha) < 3 or min(alpha) == max(alpha):
        return None
    from scipy import stats

    line = stats.linregress(alpha, rates)
    if line.slope <= 0:
        return None
    at = (float(np.mean(plain)) - line.intercept) / line.slope
    of_slope, of_intercept = line.stderr**2, line.intercept_stderr**2
    of_line = of_intercept + at * at * of_slope - 2 * at * np.mean(alpha) * of_slope
    error = sqrt(max(0.0, of_line + stats.sem(plain) ** 2)) / line.slope
    reach = float(stats.t.ppf((1 + LEVEL) / 2, len(alpha) - 2)) * error
    return BreakEven(at, reach, line.rvalue**2)


def break_even_of(some: "Frame") -> BreakEven | None:
    """The break-even point of some trials."""
    seen = some[some.acceptance.notna()]
    return fitted_break_even(seen.acceptance.tolist(), seen.rate.tolist(), seen.plain_rate.tolist())


def geometric_tokens(agreement: float, k: int) -> float:
    """Tokens that a pass is expected to commit, 1 + a + … + a^k = (1 - a^(k+1)) / (1 - a).

    Args:
        agreement: a, the probability that a draft token is accepted if all tokens before it are. This is not the
            acceptance rate accepted / proposed, (a + a^2 + … + a^k) / k, which also counts the tokens after a
            rejection.
        k: Draft length.

    Source: Leviathan et al. 2023, equation 1.

    >>> geometric_tokens(0.5, 2), geometric_tokens(1.0, 4)
    (1.75, 5.0)
    """
    return sum(agreement**length for length in range(k + 1))


def agreement(cycles: "Frame") -> float | None:
    """The a of `geometric_tokens`: the share of draft tokens accepted among those that the target looked at.

    A rejection ends a cycle, and the target does not look at the tokens after it. None if it looked at none.
    """
    accepted = cycles.accepted.sum()
    examined = accepted + (cycles.accepted < cycles.proposed).sum()
    return float(accepted / examined) if examined else None


def expected_tokens(cycles: "Frame") -> float | None:
    """Tokens per pass if every draft token were accepted independently with the same probability.

    Each cycle counts with the tokens that it proposed, which may be fewer than k.
    """
    probability = agreement(cycles)
    if probability is None:
        return None
    return float(cycles.proposed.map(lambda proposed: geometric_tokens(probability, proposed)).mean())
