"""A softmax over some of the classes stands for the one over all of them."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from spectool.lab.training.bits_per_byte import code_length
from spectool.lab.training.classes import Classes, choose_classes, classes_of, loss_of
from spectool.lab.training.text import HeldOut
from spectool.tests.lab.training.tiny import random_stream, tiny_model


def some_classes(ids: int = 4000, min_count: int = 2) -> Classes:
    return classes_of(random_stream(ids, 40_000, np.random.default_rng(0)), ids, min_count)


def test_all_classes_where_they_are_few() -> None:
    classes = some_classes()
    for most in (0, classes.number, 10**6):
        chosen, offsets = choose_classes(np.array([1, 2], np.int32), classes, most, np.random.default_rng(0))
        assert np.array_equal(chosen, np.arange(classes.number))
        assert np.array_equal(offsets, classes.log_sizes)


@pytest.mark.parametrize("seed", range(5))
def test_targets_and_frequent_classes_are_always_there(seed: int) -> None:
    classes = some_classes()
    rng = np.random.default_rng(seed)
    targets = rng.integers(classes.number, size=60).astype(np.int32)
    chosen, offsets = choose_classes(targets, classes, 350, rng)
    assert len(chosen) == len(set(chosen.tolist())) == len(offsets) == 350
    assert set(targets.tolist()) | set(range(200)) | {classes.number - 1} <= set(chosen.tolist())
    many = rng.permutation(classes.number)[: classes.number // 2].astype(np.int32)
    chosen, _ = choose_classes(many, classes, 350, rng)
    assert set(many.tolist()) < set(chosen.tolist())
    assert len(chosen) > len(many) + 50, "there is a sample of the others too"


def test_the_sum_of_exponentials_is_right_on_average() -> None:
    classes = some_classes()
    rng = np.random.default_rng(7)
    logits = rng.normal(size=classes.number)
    exact = np.exp(logits + classes.log_sizes).sum()
    sums = []
    for _ in range(2000):
        chosen, offsets = choose_classes(np.array([5, 900], np.int32), classes, 350, rng)
        sums.append(np.exp(logits[chosen] + offsets).sum())
    error = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - exact) < 4 * error
    assert error < exact / 200


def test_loss_and_gradients_are_those_of_the_whole_softmax() -> None:
    classes = some_classes(600)
    model, _ = tiny_model(classes)
    rows = mx.array(np.random.default_rng(3).integers(classes.number, size=(4, 33)))
    everything = mx.arange(classes.number), mx.array(classes.log_sizes)

    def exact(rows: mx.array) -> mx.array:
        logits = model(rows[:, :-1]) + everything[1]
        of_class = nn.losses.cross_entropy(logits, rows[:, 1:])  # the rare ids share what their class has
        return mx.mean(of_class + everything[1][rows[:, 1:]])

    loss, gradients = nn.value_and_grad(model, lambda rows: loss_of(model, rows, *everything))(rows)
    expected, slopes = nn.value_and_grad(model, exact)(rows)
    assert loss.item() == pytest.approx(expected.item(), rel=0.005)
    one, two = gradients["model"]["embed_tokens"]["weight"], slopes["model"]["embed_tokens"]["weight"]
    assert (mx.linalg.norm(one - two) / mx.linalg.norm(two)).item() < 0.02
    text = HeldOut(tuple(np.array(row, dtype=np.int32) for row in np.array(rows)), 100)
    same = Classes(np.arange(classes.number, dtype=np.int32), classes.common, classes.log_sizes)
    assert code_length(model, text, 32, same).nats_per_token == pytest.approx(expected.item(), rel=1e-5)
