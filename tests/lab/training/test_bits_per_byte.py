"""Bits per byte: exact where a vocabulary is large and most of its ids are equally likely."""

import math

import mlx.core as mx
import numpy as np
import pytest

from spectool.lab.training.bits_per_byte import CodeLength, log_normaliser


def test_units() -> None:
    length = CodeLength(nats=math.log(2) * 12, tokens=4, bytes=6)
    assert length.bits_per_byte == pytest.approx(2)
    assert length.nats_per_token == pytest.approx(3 * math.log(2))


@pytest.mark.parametrize("ids", [1, 511, 512, 513, 151_665])
@pytest.mark.parametrize("equal", [0.0, 0.95])
def test_the_sum_of_exponentials(ids: int, equal: float) -> None:
    rng = np.random.default_rng(ids)
    logits = rng.normal(size=(5, ids)) * 3
    logits[:, int(ids * (1 - equal)) :] = -2.345678
    logits = logits.astype(np.float32).astype(np.float64)
    exact = np.log(np.exp(logits).sum(axis=-1))
    assert np.abs(np.array(log_normaliser(mx.array(logits, mx.float32))) - exact).max() < 2e-5
