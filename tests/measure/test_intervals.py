"""Means and speed-ups against scipy, and how often their intervals hold the truth."""

from collections.abc import Callable
from itertools import product
from statistics import geometric_mean

import numpy as np
import pytest

from spectool.lab.paper_tables.cost_model import mean_interval
from spectool.measure.intervals import FEWEST, interval_ends, speedup_interval
from spectool.tests.tiers import nightly

SEED = 7
RUNS = 200


@pytest.fixture
def rng() -> np.random.Generator:
    print("seed", SEED)
    return np.random.default_rng(SEED)


def test_the_interval_of_a_mean_is_where_a_test_of_its_sign_ends(rng: np.random.Generator) -> None:
    values = rng.normal(0.1, 0.2, 9)
    found = mean_interval(values.tolist())
    assert (found.value, found.n) == (pytest.approx(values.mean()), 9)
    signs = np.array(list(product((1, -1), repeat=9)))
    for end, inside in ((found.low, 1e-9), (found.high, -1e-9)):
        for at, rejected in ((end + inside, False), (end - inside, True)):
            shifted = signs @ (values - at)
            share = min((shifted >= shifted[0] - 1e-12).mean(), (shifted <= shifted[0] + 1e-12).mean())
            assert bool(share <= 0.025) is rejected


@pytest.mark.nightly  # SciPy takes a second to import
@pytest.mark.parametrize("n", [14, 100])
def test_intervals_of_well_behaved_values_are_students(rng: np.random.Generator, n: int) -> None:
    from scipy import stats

    values = rng.normal(1.1, 0.2, n)
    for level in (0.95, 0.99):
        (low,), (high,) = interval_ends(values[None], level)
        theirs = stats.ttest_1samp(values, 1).confidence_interval(level)
        tolerance = 0.15 * (theirs.high - theirs.low)
        assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=tolerance)


# Noise of a time, as its logarithm: the same for plain decoding and for drafting.
NOISES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "heavy tails": lambda rng, shape: rng.standard_t(2, shape),
    "a tenth disturbed": lambda rng, shape: rng.normal(size=shape) + 20 * (rng.random(shape) < 0.1),
    "prompts unlike each other": lambda rng, shape: rng.normal(size=shape),
}


@pytest.mark.parametrize(
    ("kind", "noise"), [("normal", 0.2), *nightly(("normal", 0.1), *product([*NOISES][1:], (0.2,)), ("normal", 0.4))]
)
@pytest.mark.parametrize("n", [8, *nightly(20, 100)])
def test_equal_speeds_are_called_different_in_one_run_of_twenty(n: int, kind: str, noise: float) -> None:
    runs, seed = 2000, [SEED, n, round(100 * noise), list(NOISES).index(kind)]
    print("seed", seed)
    rng = np.random.default_rng(seed)
    # A prompt's noise has one scale, whichever way it is decoded.
    scale = np.exp(rng.normal(size=(runs, n))) if kind == "prompts unlike each other" else 1.0
    plain, drafted = (np.exp(noise * scale * NOISES[kind](rng, (runs, n))) for _ in range(2))
    low, high = interval_ends(np.log(plain / drafted))
    one = speedup_interval((plain / drafted)[0].tolist())
    assert (one.low, one.high) == pytest.approx((np.exp(low[0]), np.exp(high[0])))
    faster, slower = (low > 0).mean(), (high < 0).mean()
    print(f"{n} prompts, {kind}, {noise:.0%}: faster {faster:.2%}, slower {slower:.2%}")
    error = 3.5 * (0.025 * 0.975 / runs) ** 0.5  # hardly one of 36 shares lies beyond
    assert abs(faster - 0.025) < error and abs(slower - 0.025) < error


@pytest.mark.parametrize("n", [8, *nightly(20)])
def test_the_luckiest_of_many_equal_configurations_rarely_pays(n: int) -> None:
    runs, many, rng = 1000, 6, np.random.default_rng(SEED)
    print("seed", SEED)
    paid = 0
    for _ in range(runs):
        plain = np.exp(rng.normal(0, 0.2, n))  # shared by all configurations
        speedups = plain / np.exp(rng.normal(0, 0.2, (many, n)))
        best = speedups[np.argmax(np.log(speedups).mean(axis=1))]
        low = speedup_interval(best.tolist(), 1 - 0.05 / many).low
        paid += low is not None and low > 1
    print(f"{n} prompts, {many} configurations: {paid / runs:.2%}")
    assert 0.003 < paid / runs < 0.025 + 3 * (0.025 / runs) ** 0.5


def test_speed_ups_are_averaged_as_factors() -> None:
    ratios = [2.0, 0.5, 4.0, 0.25, 1.0, 1.0]
    found = speedup_interval(ratios)
    assert found.value == pytest.approx(1.0) == geometric_mean(ratios)
    other_way = speedup_interval([1 / ratio for ratio in ratios])
    assert (other_way.low, other_way.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_too_few_values_have_no_interval() -> None:
    assert mean_interval([2.0]) == (2.0, None, None, 1)
    assert speedup_interval([1.0, 2.0] * 4, 0.9999).low is None, "too few for so high a level"
    assert mean_interval([2.0] * (FEWEST - 1)).low is None and mean_interval([2.0] * FEWEST).low == 2


@pytest.mark.parametrize("n", [6, 12, *nightly(40)])
@pytest.mark.parametrize("skewed", [False, True])
def test_intervals_of_means_hold_the_truth_more_often_than_the_bootstrap(n: int, skewed: bool) -> None:
    rng = np.random.default_rng(SEED)
    print("seed", SEED)
    held = {"subsets": 0, "bootstrap": 0}
    for _ in range(RUNS):
        values = np.exp(rng.normal(0, 0.3, n)) if skewed else rng.normal(1, 0.3, n)
        truth = np.exp(0.3**2 / 2) if skewed else 1.0
        found = mean_interval(values.tolist())
        drawn = values[rng.integers(0, n, (500, n))].mean(axis=1)
        low, high = np.percentile(drawn, [2.5, 97.5])
        held["subsets"] += found.low <= truth <= found.high
        held["bootstrap"] += low <= truth <= high
    print(n, skewed, held)
    assert 0.90 <= held["subsets"] / RUNS <= 0.99
    assert held["subsets"] >= held["bootstrap"] - 0.02 * RUNS
    if n == 6:
        assert held["bootstrap"] < held["subsets"]
