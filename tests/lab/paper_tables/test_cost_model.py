"""Break-even points and the cost model against statsmodels, and how often their intervals hold the truth."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.stats._delta_method import NonlinearDeltaCov

from spectool.lab.paper_tables.cost_model import CostModel, fit_cost, fitted_break_even, fixed_lengths
from spectool.lab.paper_tables.reading import read_run
from spectool.lab.paper_tables.tables import cost_model
from spectool.lab.paper_tables.trials import trial_frames
from spectool.tests.measure.bench.runs import Truth, drawn_blocks, write_run

SEED = 7
RUNS = 200


@pytest.fixture
def rng() -> np.random.Generator:
    print("seed", SEED)
    return np.random.default_rng(SEED)


def test_a_break_even_is_statsmodels(rng: np.random.Generator) -> None:
    x = rng.uniform(0.2, 0.7, 25)
    y = 9 + 13 * x + rng.normal(0, 0.5, 25)
    plain = np.full(25, 14.8)
    found = fitted_break_even(x.tolist(), y.tolist(), plain.tolist())
    fitted = sm.OLS(y, sm.add_constant(x)).fit()
    theirs = NonlinearDeltaCov(lambda ab: np.array([(14.8 - ab[0]) / ab[1]]), fitted.params, fitted.cov_params())
    assert found is not None
    assert found.alpha == pytest.approx(theirs.predicted()[0])
    assert found.r_squared == pytest.approx(fitted.rsquared)
    assert found.reach == pytest.approx(stats.t.ppf(0.975, 23) * theirs.se_vectorized()[0], rel=1e-6)


def test_the_cost_model_is_statsmodels(rng: np.random.Generator) -> None:
    seen = _observations(rng, (2, 4, 6), 10, 0.1)
    found = fit_cost(seen)
    theirs = sm.OLS(
        ((1 + seen.acceptance * seen.k) / seen.speedup - 1).to_numpy(), np.stack([seen.k + 1, seen.k**2], axis=1)
    ).fit()
    low, high = theirs.conf_int().T
    assert found is not None and not found.timed
    for place, constant in enumerate((found.r, found.beta)):
        assert (constant.low, constant.value, constant.high) == pytest.approx(
            (low[place], theirs.params[place], high[place])
        )


def test_intervals_of_break_evens_hold_the_truth() -> None:
    rng = np.random.default_rng(SEED)
    print("seed", SEED)
    held = 0
    for _ in range(RUNS):
        alpha = rng.uniform(0.2, 0.7, 20)
        rates = 9 + 13 * alpha + rng.normal(0, 0.6, 20)
        found = fitted_break_even(alpha.tolist(), rates.tolist(), (14.8 + rng.normal(0, 0.3, 20)).tolist())
        assert found is not None
        held += abs(found.alpha - 5.8 / 13) <= found.reach
    print("break-even", held)
    assert 0.90 <= held / RUNS <= 0.99


@pytest.mark.parametrize("lengths", [(2, 4), (4,)])
def test_intervals_of_r_and_beta_hold_the_truth(lengths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(SEED)
    print("seed", SEED)
    held = np.zeros(2)
    for _ in range(RUNS):
        found = fit_cost(_observations(rng, lengths, 12, 0.05))
        assert found is not None and found.timed == (len(lengths) == 1)
        for place, (constant, truth) in enumerate(((found.r, 0.071), (found.beta, 0.19))):
            held[place] += constant.low <= truth <= constant.high
    print("r, beta", held)
    assert (held >= 0.90 * RUNS).all() and (held <= 0.99 * RUNS).all()


def _observations(rng: np.random.Generator, lengths: tuple[int, ...], each: int, noise: float) -> pd.DataFrame:
    """Prompts whose cycles cost what the model says with r = 0.071 and beta = 0.19, give or take."""
    k = np.repeat(lengths, each)
    alpha = rng.uniform(0.2, 0.7, len(k))
    cost = 1 + 0.071 * (k + 1) + 0.19 * k * k + rng.normal(0, noise, len(k))
    steps = 0.071 + rng.normal(0, 0.01, len(k))
    return pd.DataFrame({"acceptance": alpha, "k": k, "speedup": (1 + alpha * k) / cost, "draft_step": steps})


def test_what_cannot_be_told() -> None:
    assert fitted_break_even([0.1, 0.2], [1.0, 2.0], [1.5, 1.5]) is None
    assert fitted_break_even([0.4, 0.4, 0.4], [1.0, 2.0, 3.0], [1.5, 1.5, 1.5]) is None
    assert fitted_break_even([0.1, 0.2, 0.3], [3.0, 2.0, 1.0], [1.5, 1.5, 1.5]) is None
    assert fit_cost(_observations(np.random.default_rng(SEED), (2,), 2, 0.1)) is None


def test_intervals_of_runs_hold_their_truth(tmp_path: Path) -> None:
    held, runs = [0, 0], 24
    truth = Truth("qwen", 0.6, CostModel(0.071, 0.05))
    for seed in range(runs):
        blocks = drawn_blocks([truth], ["pl"], ["list"], prompts=12, seed=seed, noise=0.05)
        frames = trial_frames(read_run(write_run(tmp_path / f"{seed}.bench", blocks)))
        found = fit_cost(fixed_lengths(frames.trials))
        assert found is not None
        held[0] += found.r.low <= 0.071 <= found.r.high
        held[1] += found.beta.low <= 0.05 <= found.beta.high
    print(f"seeds 0 to {runs - 1}; r, beta held:", held)
    assert min(held) >= 20


def test_the_table_has_the_break_even_of_the_model(tmp_path: Path) -> None:
    table = cost_model(trial_frames(read_run(write_run(tmp_path / "x.bench", drawn_blocks()))))
    row = table.loc["qwen"]
    for k in (2, 4):
        exact = 100 * CostModel(0.07, 0.05).exact_break_even(k)
        assert row[f"k = {k}: exact"] != row[f"k = {k}: r + βk"]
        assert float(row[f"k = {k}: exact"][:-1]) == pytest.approx(exact, abs=3)
        assert float(row[f"k = {k}: line"][:-1]) == pytest.approx(exact, abs=5)
