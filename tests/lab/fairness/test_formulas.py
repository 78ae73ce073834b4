"""Formulas by hand, by simulation, against the published figures, and bounds on random distributions."""

import math
import random

import numpy as np
import pytest

from spectool.lab.fairness.formulas import expected_speedup, least_by_divergence, least_by_fitness, ratio
from spectool.lab.tuning.corrective import unfairness

# "Disparate Impacts of Speculative Decoding", section 8.2: acceptance and D of GPT-2 and GPT-2-XL.
PUBLISHED = {"en": (0.625, 0.47), "ja": (0.545, 1.08)}
GAMMA = 5  # appendix D.1


def seeded() -> np.random.Generator:
    seed = random.randrange(2**32)
    print("seed", seed)
    return np.random.default_rng(seed)


def distributions(rng: np.random.Generator, places: int, size: int) -> np.ndarray:
    """Rows of probabilities, from flat to nearly certain."""
    sharpness = rng.choice([0.05, 0.3, 1.0, 10.0], size=(places, 1))
    return rng.dirichlet(np.ones(size), size=places) ** (1 / sharpness) + 1e-12


def drawn(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The task's distribution u, the target's p and the draft's q at some places, ``[places, ids]`` each."""
    places, size = int(rng.integers(1, 30)), int(rng.integers(2, 12))
    u, p, q = (distributions(rng, places, size) for _ in range(3))
    near = rng.random((places, 1))
    p = near * u + (1 - near) * p
    q = near * p + (1 - near) * q
    return tuple(d / d.sum(axis=1, keepdims=True) for d in (u, p, q))  # type: ignore[return-value]


def test_speedup_by_hand() -> None:
    assert expected_speedup(0.0, 4, 0.0) == 1
    assert expected_speedup(1.0, 4, 0.0) == 5
    assert expected_speedup(0.5, 2, 0.25) == pytest.approx(1.75 / 1.5)
    assert expected_speedup(0.8, 5, 0.1) == pytest.approx((1 - 0.8**6) / ((1 - 0.8) * (5 * 0.1 + 1)))


@pytest.mark.parametrize(("acceptance", "gamma", "cost"), [(0.3, 1, 0.05), (0.625, 5, 0.1), (0.95, 8, 0.3)])
def test_speedup_by_simulation(acceptance: float, gamma: int, cost: float) -> None:
    """Draft tokens are accepted up to the first that is not; the target adds one of its own."""
    cycles = 200_000
    kept = np.cumprod(seeded().random((cycles, gamma)) < acceptance, axis=1).sum(axis=1)
    tokens = kept + 1
    found = tokens.mean() / (1 + gamma * cost)
    error = tokens.std() / math.sqrt(cycles) / (1 + gamma * cost)
    assert expected_speedup(acceptance, gamma, cost) == pytest.approx(found, abs=5 * error)


def test_the_bounds_hold() -> None:
    """Theorems 1 and 2 on small random distributions, whatever the order of r_p and r_q."""
    rng, other_order, tight = seeded(), 0, 0
    for _ in range(2000):
        u, p, q = drawn(rng)
        gamma, cost = int(rng.integers(1, 9)), float(rng.random())
        alpha = np.minimum(p, q).sum(axis=1)
        kl = (p * np.log(p / q)).sum(axis=1).mean()
        cross_entropy = -(p * np.log(q)).sum(axis=1).mean()
        r_q, r_p = (np.abs(u - d).sum(axis=1).mean() / 2 for d in (q, p))
        by_place = float(np.mean([expected_speedup(a, gamma, cost) for a in alpha]))
        mean = expected_speedup(alpha.mean(), gamma, cost)
        by_kl, by_cross_entropy = (expected_speedup(least_by_divergence(d), gamma, cost) for d in (kl, cross_entropy))
        assert by_place >= mean - 1e-9 and mean >= by_kl - 1e-6 and by_kl >= by_cross_entropy  # KL of 0 is rounded
        assert abs(alpha.mean() - (1 - r_q)) <= r_p + 1e-9
        assert alpha.mean() >= least_by_fitness(r_q, r_p) - 1e-9
        other_order += r_p > r_q
        tight += least_by_divergence(kl) > 0.5
    assert other_order > 100 and tight > 20, "the draws must try what they are for"


def test_the_bounds_can_be_reached() -> None:
    assert least_by_divergence(0) == 1 == least_by_fitness(0, 0)
    assert least_by_divergence(2) == 0 == least_by_divergence(7)
    assert least_by_divergence(0.5) == 0.5
    assert least_by_fitness(0.25, 0.25) == 0.5


def test_ratio() -> None:
    assert ratio([2, 4], [4, 4])[0] == 0.75
    assert ratio([3, 1], [4, 2]) == (pytest.approx(4 / 6), pytest.approx(math.sqrt(2 * (2 * (1 / 3) ** 2)) / 6))
    assert ratio([1], [2]) == (0.5, math.inf)
    # Rows of equal length: the standard error of a mean of their rates.
    rng = seeded()
    sums = rng.random(50) * 8
    assert ratio(sums.tolist(), [8] * 50)[1] == pytest.approx((sums / 8).std(ddof=1) / math.sqrt(50))


def test_intervals_hold_what_they_say() -> None:
    """Rows that differ in their rate and length: 95% intervals hold the true rate about that often."""
    rng, held = seeded(), 0
    rates, draws = rng.beta(4, 4, size=5000), 1000
    lengths = rng.integers(5, 60, size=5000)
    truth = (rates * lengths).sum() / lengths.sum()
    for _ in range(draws):
        rows = rng.integers(5000, size=60)
        mean, error = ratio(rng.binomial(lengths[rows], rates[rows]).tolist(), lengths[rows].tolist())
        held += abs(mean - truth) < 1.96 * error
    assert 0.91 < held / draws < 0.98


def test_published_figures() -> None:
    """What the paper prints of English and Japanese keeps to its theorem, and gives its unfairness and speeds."""
    for acceptance, divergence in PUBLISHED.values():
        assert acceptance >= least_by_divergence(divergence)
    assert least_by_divergence(0.47) == pytest.approx(0.515, abs=1e-3)
    assert least_by_divergence(1.08) == pytest.approx(0.265, abs=1e-3)
    assert unfairness([divergence for _, divergence in PUBLISHED.values()]) == pytest.approx((1.08 - 0.47) ** 2 / 2)
    fast, slow = (expected_speedup(acceptance, GAMMA, 0.0) for acceptance, _ in PUBLISHED.values())
    assert (fast, slow) == (pytest.approx(2.508, abs=1e-3), pytest.approx(2.140, abs=1e-3))
    assert 1 - slow / fast == pytest.approx(0.147, abs=1e-3)
