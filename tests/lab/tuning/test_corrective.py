"""s-CDF's gradient against the closed form on a model of one table, and against finite differences."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.nn.utils import value_and_grad

from spectool.lab.tuning.corrective import GradientSum, unfairness
from spectool.lab.tuning.divergence import Pairing, cross_entropy
from spectool.lab.tuning.examples import Padded

IDS, TASKS = 5, 3


class Table(nn.Module):
    """A model whose logits after a token are a row of its table."""

    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = mx.array(table)

    def __call__(self, ids: mx.array) -> mx.array:
        return self.table[ids]


@pytest.fixture
def toy() -> tuple[Any, Any, Any]:
    """A table, rows of prefixes for each task, and the target's distributions there."""
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.ones(IDS), size=(TASKS, 2, 3))
    return rng.normal(size=(IDS, IDS)), rng.integers(IDS, size=(TASKS, 2, 4)), p


def closed(table: Any, rows: Any, p: Any) -> tuple[Any, Any]:
    """Every D_T and its gradient, in float64: the mean over prefixes s of (q - p) at the row of s."""
    divergences, gradients = [], []
    for ids, wanted in zip(rows, p, strict=True):
        gradient = np.zeros_like(table)
        total, places = 0.0, wanted.shape[0] * wanted.shape[1]
        for row, right in zip(ids[:, :-1].reshape(-1), wanted.reshape(places, -1), strict=True):
            log_q = table[row] - np.log(np.exp(table[row]).sum())
            total -= (right * log_q).sum() / places
            gradient[row] += (np.exp(log_q) - right) / places
        divergences.append(total)
        gradients.append(gradient)
    return np.array(divergences), np.array(gradients)


def summed(toy: tuple[Any, Any, Any], objective: Any, order: Any = range(TASKS)) -> Any:
    """What the stage computes, with its own divergence."""
    table, rows, p = toy
    model, sums = Table(table.astype(np.float32)), GradientSum(objective)
    at = [part.reshape(-1).astype(np.int32) for part in np.indices((2, 3))]
    for task in order:
        log_p = mx.array(np.log(p[task]).reshape(6, IDS).astype(np.float32))

        def loss(task: int = task, log_p: mx.array = log_p) -> mx.array:
            return cross_entropy(model, Pairing(IDS), Padded(rows[task], rows[task], *at, at[1]), log_p)

        divergence, gradient = value_and_grad(model, loss)()
        sums.add(float(divergence.item()), gradient)
    return np.array(sums.total()["table"])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_the_closed_form(toy: tuple[Any, Any, Any], order: tuple[int, ...]) -> None:
    divergences, gradients = closed(*toy)
    assert len(set(divergences.round(6))) == TASKS
    expected = sum((d - divergences.min()) * g for d, g in zip(divergences, gradients, strict=True)) / TASKS
    assert np.abs(expected).max() > 0.001
    np.testing.assert_allclose(summed(toy, "s-cdf", order), expected, atol=1e-6)
    np.testing.assert_allclose(summed(toy, "mean", order), gradients.mean(axis=0), atol=1e-6)


def test_finite_differences(toy: tuple[Any, Any, Any]) -> None:
    """Of (1/m) sum (D_T - c)^2 / 2, with c held at the least D_T."""
    table, rows, p = toy
    floor = closed(*toy)[0].min()
    found = summed(toy, "s-cdf")
    for place in np.ndindex(IDS, IDS):
        sides = []
        for step in (1e-5, -1e-5):
            moved = table.copy()
            moved[place] += step
            sides.append(((closed(moved, rows, p)[0] - floor) ** 2).mean() / 2)
        assert found[place] == pytest.approx((sides[0] - sides[1]) / 2e-5, abs=1e-6)


def test_many_orders_of_many_tasks() -> None:
    rng = np.random.default_rng(11)
    for _ in range(30):
        m = int(rng.integers(1, 7))
        divergences = rng.integers(1, 5, m).astype(float).tolist()  # with ties
        gradients = rng.normal(size=(m, 4)).astype(np.float32)
        sums = GradientSum("s-cdf")
        for divergence, gradient in zip(divergences, gradients, strict=True):
            sums.add(divergence, {"w": [mx.array(gradient)]})
        expected = (np.array(divergences) - min(divergences)) / m @ gradients
        np.testing.assert_allclose(np.array(sums.total()["w"][0]), expected, atol=1e-6)
        if m == 1:
            assert not expected.any()


def test_unfairness() -> None:
    assert unfairness([3.0, 1.0, 2.0]) == pytest.approx((4 + 0 + 1) / 3)
    assert unfairness([2.0]) == 0
