"""Exact-match verification draws from the target's own distribution, whatever is proposed.

Three tokens are drawn many times from a model of eight tokens and the joint counts of the last
two are compared with exact probabilities by a chi-square test. Seeds are fixed; with other seeds
each test would fail by chance once in 10,000 times.
"""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.sample_utils import make_sampler

from spectool.runtime.generation import generate_step

from .drafters import Fixed
from .models import tiny_model

VOCABULARY = 8
PROMPT = [3, 1]
RUNS = 400
MANY_RUNS = 4000
NORMAL_QUANTILE = 3.719  # one-sided, 1e-4

Transform = Callable[[np.ndarray], np.ndarray]


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model(vocabulary=VOCABULARY, scale=1.0)


def joint(model: Any, transform: Transform) -> np.ndarray:
    """Return P(t1, t2, t3 | PROMPT), shape [8, 8, 8], ``transform`` applied to each position."""

    def following(prefixes: list[tuple[int, ...]]) -> np.ndarray:
        logits = model(mx.array([[*PROMPT, *prefix] for prefix in prefixes]))[:, -1]
        return transform(np.array(mx.softmax(logits, axis=-1), dtype=np.float64))

    ids = range(VOCABULARY)
    first = following([()])[0]
    second = following([(a,) for a in ids])
    third = following(list(itertools.product(ids, ids))).reshape(VOCABULARY, VOCABULARY, VOCABULARY)
    return first[:, None, None] * second[:, :, None] * third


def chi_square_excess(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """Return chi-square / its critical value; rare cells are merged into one."""
    expected = probabilities.ravel() * counts.sum()
    common = expected >= 5
    merged = np.append(expected[common], expected[~common].sum())
    observed = np.append(counts.ravel()[common], counts.ravel()[~common].sum())
    merged, observed = merged[merged > 0], observed[merged > 0]
    freedom = len(merged) - 1
    # Wilson and Hilferty 1931.
    spread = 2 / (9 * freedom)
    critical = freedom * (1 - spread + NORMAL_QUANTILE * spread**0.5) ** 3
    return float(((observed - merged) ** 2 / merged).sum() / critical)


def same(probabilities: np.ndarray) -> np.ndarray:
    return probabilities


def halved_by_xtc(probabilities: np.ndarray) -> np.ndarray:
    """A coin for each position: with 1/2, all tokens above 0.1 but the least of them are left out."""
    above = probabilities > 0.1
    least = np.where(above, probabilities, np.inf).min(axis=-1, keepdims=True)
    cut = np.where(above & (probabilities > least), 0.0, probabilities)
    return 0.5 * probabilities + 0.5 * cut / cut.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("kind", ["temperature", "xtc"])
def test_the_distribution_is_the_targets(model: Any, kind: str) -> None:
    check(model, "likely", kind, RUNS)


@pytest.mark.slow
@pytest.mark.parametrize("proposed", ["likely", "unlikely", "nothing"])
@pytest.mark.parametrize("kind", ["temperature", "xtc"])
def test_the_distribution_is_the_targets_at_length(model: Any, proposed: str, kind: str) -> None:
    check(model, proposed, kind, MANY_RUNS)


def check(model: Any, proposed: str, kind: str, runs: int) -> None:
    """Draw three tokens ``runs`` times and compare each pair of them with exact probabilities."""
    if kind == "xtc":
        sampler = make_sampler(temp=1.0, xtc_probability=0.5, xtc_threshold=0.1)
    else:
        sampler = make_sampler(temp=1.0)
    exact = joint(model, same if kind == "temperature" else halved_by_xtc)
    pick = {"likely": exact.argmax(), "unlikely": exact.argmin()}.get(proposed)
    draft = [] if pick is None else [int(i) for i in np.unravel_index(pick, exact.shape)]
    mx.random.seed(7)
    counts: Counter[tuple[int, ...]] = Counter()
    accepted = 0
    for _ in range(runs):
        steps = generate_step(mx.array(PROMPT), model, drafter=Fixed(draft), max_tokens=3, sampler=sampler)
        tokens, _, drafted = zip(*steps, strict=True)
        counts[tokens] += 1
        accepted += sum(drafted)
    table = np.zeros(exact.shape)
    for tokens, count in counts.items():
        table[tokens] = count
    print(f"{kind}, {proposed} {draft}: accepted {accepted} of {runs * len(draft)}, seed 7")
    assert (accepted > 0) == (proposed == "likely") or proposed == "unlikely"
    for axis in range(3):
        assert chi_square_excess(table.sum(axis=axis), exact.sum(axis=axis)) < 1.0, f"pair without {axis}"


def test_the_test_can_fail(model: Any) -> None:
    exact = joint(model, same).sum(axis=0)
    wrong = joint(model, halved_by_xtc).sum(axis=0)
    counts = np.random.default_rng(7).multinomial(RUNS, exact.ravel() / exact.sum())
    assert chi_square_excess(counts, exact) < 1.0 < chi_square_excess(counts, wrong)


def test_each_position_is_a_call_of_its_own(model: Any) -> None:
    shapes: list[tuple[int, ...]] = []

    def sampler(logprobs: mx.array) -> mx.array:
        shapes.append(logprobs.shape)
        return mx.argmax(logprobs, axis=-1)

    list(generate_step(mx.array(PROMPT), model, drafter=Fixed([0, 0, 0]), max_tokens=4, sampler=sampler))
    assert set(shapes) == {(1, VOCABULARY)}
    assert len(shapes) >= 4
