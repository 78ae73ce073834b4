"""What acceptance, divergence and fitness say about speed.

    f(a) = 1 + a + … + a^gamma    tokens that a pass of the target commits; the speed-up is f(a) / (1 + gamma c)

with gamma draft tokens per pass, each accepted with probability a, and a draft pass that costs c passes of the target.
Verifying gamma + 1 tokens is assumed to cost as much as verifying one. Because f grows with a, lower bounds of the
acceptance rate give lower bounds of the speed-up:

    from KL and from D_T    alpha >= 1 - sqrt(d / 2), d in nats       Theorem 1 (Pinsker's inequality)
    from fitness            alpha >= (1 - r_q) - r_p                  Theorem 2
    and from above          alpha <= (1 - r_q) + r_p                  likewise; two such ranges apart: Corollary 2

Theorem 2 assumes r_p <= r_q, but its proof does not need that. From 2 nats on, Theorem 1 says nothing, and the bound is
an acceptance of 0.

Source: "Disparate Impacts of Speculative Decoding", Eq. 2 to 8 and appendix A.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import permutations

import numpy as np

from spectool.lab.paper_tables.cost_model import geometric_tokens


def expected_speedup(acceptance: float, gamma: int, cost: float) -> float:
    """The expected speed against plain decoding (Eq. 2).

    Args:
        acceptance: Alpha, 0 to 1.
        gamma: Draft tokens per pass.
        cost: Seconds of a draft pass / seconds of a pass of the target.

    >>> round(expected_speedup(0.625, 5, 0.0), 3), round(expected_speedup(0.545, 5, 0.1), 3)
    (2.508, 1.427)
    """
    return geometric_tokens(acceptance, gamma) / (1 + gamma * cost)


def least_by_divergence(nats: float) -> float:
    """The least acceptance rate that a mean divergence allows (Theorem 1); 0 from 2 nats on.

    >>> round(least_by_divergence(0.47), 3), least_by_divergence(5.0)
    (0.515, 0.0)
    """
    return max(0.0, 1 - math.sqrt(max(0.0, nats) / 2))


def least_by_fitness(draft_misfit: float, target_misfit: float) -> float:
    """The least acceptance rate that r_q and r_p allow (Theorem 2)."""
    return max(0.0, 1 - draft_misfit - target_misfit)


def sure_gaps(misfits: Mapping[str, tuple[float, float]]) -> list[tuple[str, str]]:
    """The pairs of tasks of which the first surely has the larger acceptance, from r_q and r_p alone (Corollary 2).

    >>> sure_gaps({"pl": (0.4, 0.1), "uk": (0.7, 0.1), "crh": (0.75, 0.3)})
    [('pl', 'uk')]
    """
    pairs = permutations(misfits.items(), 2)
    return [(i, j) for (i, (q_i, p_i)), (j, (q_j, p_j)) in pairs if q_j - q_i > p_i + p_j]


def ratio(sums: Sequence[float], counts: Sequence[float]) -> tuple[float, float]:
    """Sum over count of all rows, and its standard error over rows, which is infinite for a single row.

    Source: Cochran, Sampling Techniques, Eq. 6.9 (ratio estimator).
    """
    x, n = np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    mean = float(x.sum() / n.sum())
    if len(x) < 2:
        return mean, math.inf
    spread = float(((x - mean * n) ** 2).sum()) * len(x) / (len(x) - 1)
    return mean, math.sqrt(spread) / float(n.sum())
