"""exp and log-softmax against float64 and MLX's own."""

import mlx.core as mx
import numpy as np
import pytest

from spectool.build.training.softmax import exponential, log_softmax


def test_exponential() -> None:
    x = np.concatenate([np.linspace(-120, 20, 200_001), [0.0, -87.0, -88.0, -np.inf]]).astype(np.float32)
    found = np.array(exponential(mx.array(x)), dtype=np.float64)
    expected = np.exp(x.astype(np.float64))
    tiny = x < -87
    assert np.abs(found[~tiny] / expected[~tiny] - 1).max() < 1e-5
    assert np.all(found[tiny] < 1e-37) and np.all(found >= 0)
    assert found[200_001] == 1


@pytest.mark.parametrize("size", [7, 4099])
def test_log_softmax_and_its_gradient(size: int) -> None:
    mx.random.seed(5)
    logits, weights = mx.random.normal((6, size)) * 8, mx.random.uniform(shape=(6, size))
    expected = np.array(logits, dtype=np.float64)
    expected = expected - np.log(np.exp(expected - expected.max(-1, keepdims=True)).sum(-1, keepdims=True))
    expected -= np.array(logits, dtype=np.float64).max(-1, keepdims=True)
    assert np.array(log_softmax(logits)) == pytest.approx(expected, abs=2e-5)

    def own(x: mx.array) -> mx.array:
        return mx.sum(weights * (x - mx.logsumexp(x, axis=-1, keepdims=True)))

    slopes = mx.grad(own)(logits)
    found = mx.grad(lambda x: mx.sum(weights * log_softmax(x)))(logits)
    assert np.array(found) == pytest.approx(np.array(slopes), rel=1e-4, abs=1e-4)
    assert float(mx.max(mx.abs(slopes))) > 1, "there is something to compare"
