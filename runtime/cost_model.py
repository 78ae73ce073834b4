"""The published cost model of speculative decoding, fitted to this machine's own times.

    speedup(alpha, k) = (1 + alpha k) / ((k + 1) r + 1 + beta k^2)      break-even: alpha = r + beta k

``r`` is the time of a draft step and ``beta k^2`` all that grows with the draft besides, both in
plain passes of the target. The break-even is the published one; solving ``speedup = 1`` exactly
gives ``r (k + 1) / k + beta k``.

Source: paper on cross-family speculative decoding for Polish, section 6.2, equations 3 to 6.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple


class CostModel(NamedTuple):
    """The two constants of the model.

    Attributes:
        r: Seconds of a draft step / seconds of a plain pass.
        beta: Overhead that grows with the square of the draft length, in plain passes.
    """

    r: float
    beta: float

    def speedup(self, alpha: float, k: int) -> float:
        """Return the speed against plain decoding at acceptance rate ``alpha`` and draft length ``k``.

        >>> round(CostModel(0.071, 0.19).speedup(0.446, 2), 2)
        0.96
        """
        return (1 + alpha * k) / ((k + 1) * self.r + 1 + self.beta * k * k) if k else 1.0

    def break_even(self, k: int) -> float:
        """Return the acceptance rate from which on drafting ``k`` tokens pays.

        >>> round(CostModel(0.071, 0.19).break_even(2), 2)
        0.45
        """
        return self.r + self.beta * k

    def advise(self, alpha: float, longest: int) -> int:
        """Return the draft length of highest speed at acceptance rate ``alpha``, 0 to ``longest``."""
        return max(range(longest + 1), key=lambda k: self.speedup(alpha, k))


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
