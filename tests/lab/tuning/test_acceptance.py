"""The acceptance proxy, draft by draft without a cache."""

import mlx.core as mx
import numpy as np
import pytest

from spectool.lab.tuning.divergence import GAMMA, ROWS, Pairing, acceptance_proxy, beginnings
from spectool.tests.lab.training.tiny_pair import random_model

SIZE = 1500  # less than the models have rows
PAIRING = Pairing(SIZE)


def prompts(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return beginnings([rng.integers(SIZE, size=length).astype(np.int32) for length in range(4, 4 + rows)], 16)


def probabilities(model: object, ids: list[int]) -> np.ndarray:
    logits = np.array(model(mx.array([ids]))[0, -1, :SIZE]).astype(np.float64)  # type: ignore[operator]
    return np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()


def test_beginnings() -> None:
    groups = prompts(12)
    assert [group.shape for group in groups] == [(12, 2), (12, 4), (8, 8), (4, 12)]
    assert beginnings([], 16) == []


def test_by_hand() -> None:
    draft, target = random_model(seed=1, scale=0.6), random_model(seed=2, scale=0.4)
    groups = prompts(ROWS + 12)
    coins = np.random.default_rng([7, 1])
    accepted = drafted = 0
    for group in groups:
        for first in range(0, len(group), ROWS):
            batch = group[first : first + ROWS]
            tosses = coins.random((len(batch), GAMMA))
            for prompt, toss in zip(batch.tolist(), tosses, strict=True):
                ids, going = list(prompt), True
                for place in range(GAMMA):
                    q = probabilities(draft, ids)
                    token = int(q.argmax())
                    going = going and toss[place] < min(1, probabilities(target, ids)[token] / q[token])
                    accepted += going
                    ids.append(token)
                drafted += GAMMA
    assert 0 < accepted < drafted
    assert acceptance_proxy(draft, target, PAIRING, groups, [7, 1]) == pytest.approx(accepted / drafted, abs=1e-9)


def test_a_model_accepts_itself() -> None:
    model = random_model(seed=1, scale=0.6)
    assert acceptance_proxy(model, model, PAIRING, prompts(6), [0]) > 0.99
