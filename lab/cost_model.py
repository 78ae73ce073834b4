"""Formulas for what drafting yields and costs, for reports.

    speedup(alpha, k) = (1 + alpha k) / ((k + 1) r + 1 + beta k^2)      published break-even: r + beta k

``r`` is the time of a draft step and ``beta k^2`` all that grows with the draft besides, both in
plain passes of the target. Setting the speed-up to 1 and solving exactly gives r (k + 1) / k + beta k.

Source: paper on cross-family speculative decoding for Polish, section 6.2, equations 3 to 6.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple


class CostModel(NamedTuple):
    """The two constants of the model."""

    r: float  # seconds of a draft step / seconds of a plain pass
    beta: float  # overhead that grows with the square of the draft length, in plain passes

    def cost(self, k: int) -> float:
        """Return the time of a cycle that drafts ``k`` tokens, in plain passes."""
        return (k + 1) * self.r + 1 + self.beta * k * k

    def speedup(self, alpha: float, k: int) -> float:
        """Return the speed against plain decoding at acceptance rate ``alpha`` and draft length ``k``.

        >>> round(CostModel(0.071, 0.19).speedup(0.446, 2), 2)
        0.96
        """
        return (1 + alpha * k) / self.cost(k) if k else 1.0

    def break_even(self, k: int) -> float:
        """Return the published acceptance rate from which on drafting ``k`` tokens pays.

        >>> round(CostModel(0.071, 0.19).break_even(2), 3)
        0.451
        """
        return self.r + self.beta * k

    def exact_break_even(self, k: int) -> float:
        """Return the acceptance rate at which `speedup` is 1.

        >>> round(CostModel(0.071, 0.19).exact_break_even(2), 4)
        0.4865
        """
        return (self.cost(k) - 1) / k


def geometric_tokens(agreement: float, k: int) -> float:
    """Return the tokens a pass is expected to commit, (1 - a^(k+1)) / (1 - a).

    Args:
        agreement: a, the probability that a draft token is accepted where all before it are. That is not the
            acceptance rate accepted / proposed, (a + a^2 + … + a^k) / k, which counts the tokens after a rejection.
        k: Draft length.

    Source: Leviathan et al. 2023, equation 1.

    >>> geometric_tokens(0.5, 2), geometric_tokens(1.0, 4)
    (1.75, 5.0)
    """
    return sum(agreement**length for length in range(k + 1))


def fit_cost_model(passes: Mapping[int, float], draft: Callable[[int], float]) -> CostModel | None:
    """Fit the model to measured times by least squares: r to the drafter's, then beta to what r leaves.

    Args:
        passes: Seconds of a target pass by the number of tokens in it; 1 is plain decoding.
        draft: Seconds of the drafter by the number of tokens drafted.

    Returns:
        The model, neither constant negative; None while plain passes or passes with drafts are not measured.
    """
    lengths = [size - 1 for size in passes if size > 1]
    if 1 not in passes or not lengths:
        return None
    plain = passes[1]
    steps = sum((k + 1) ** 2 for k in lengths)
    r = sum(draft(k) * (k + 1) for k in lengths) / steps / plain
    rest = {k: (draft(k) + passes[k + 1]) / plain - 1 - r * (k + 1) for k in lengths}
    beta = sum(left * k * k for k, left in rest.items()) / sum(k**4 for k in lengths)
    return CostModel(r, max(0.0, beta))
