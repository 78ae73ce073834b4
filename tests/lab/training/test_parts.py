"""Rows depend on the seed and the step alone, and use the text up before they repeat it."""

import math
from collections import Counter
from pathlib import Path

import mlx.core as mx
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spectool.lab.training.bits_per_byte import CodeLength, log_normaliser
from spectool.lab.training.options import SIZES, TrainOptions, shape_of
from spectool.lab.training.run import Point, rate_schedule, read_table, write_table
from spectool.lab.training.text import Feed, in_valid


def feed(tokens: int, steps: int, step_tokens: int = 64, length: int = 16, seed: int = 0) -> Feed:
    return Feed(np.arange(tokens, dtype=np.int32), options(steps, step_tokens, length, seed))


def options(steps: int, step_tokens: int, length: int, seed: int) -> TrainOptions:
    return TrainOptions(shape={}, rate=0.01, steps=steps, step_tokens=step_tokens, length=length, seed=seed)


def test_rows_are_stretches_of_the_text_in_two_lengths() -> None:
    rows = [feed(2000, 9).rows(step) for step in range(9)]
    assert [row.shape for row in rows] == [(8, 9)] * 6 + [(4, 17)] * 3
    for row in rows:
        assert np.array_equal(np.diff(row, axis=1), np.ones((len(row), row.shape[1] - 1)))


def test_a_step_is_the_same_in_any_order() -> None:
    forward, backward = feed(3000, 90, seed=5), feed(3000, 90, seed=5)
    there = [forward.rows(step) for step in range(90)]
    back = [backward.rows(step) for step in reversed(range(90))][::-1]
    assert all(np.array_equal(one, two) for one, two in zip(there, back, strict=True))
    assert not np.array_equal(there[0], feed(3000, 90, seed=6).rows(0))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 4), st.sampled_from([2, 8, 16]), st.integers(0, 99))
def test_a_text_of_the_tokens_needed_is_never_seen_twice(steps: int, rows: int, length: int, seed: int) -> None:
    step_tokens = rows * length
    laid = feed(options(steps, step_tokens, length, seed).text_tokens, steps, step_tokens, length, seed)
    seen = Counter(token for step in range(steps) for token in laid.rows(step)[:, 1:].reshape(-1).tolist())
    assert sum(seen.values()) == steps * step_tokens
    assert max(seen.values()) == 1


def test_a_short_text_is_gone_through_again_in_another_order() -> None:
    laid = feed(3 * (64 + 2 * 16), 60)
    rows = [laid.rows(step) for step in range(40)]
    times = Counter(token for row in rows for token in row[:, 1:].reshape(-1).tolist())
    assert sum(count > 5 for count in times.values()) > 0.9 * 192, "all but its very ends"
    assert not np.array_equal(rows[0], rows[2])


# Shapes by name.


def parameters(shape: dict[str, int], ids: int) -> int:
    """Weights of a Llama model with tied embeddings, norms left out."""
    hidden, wide = shape["hidden_size"], shape["intermediate_size"]
    return shape["num_hidden_layers"] * (4 * hidden**2 + 3 * hidden * wide) + ids * hidden


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_what_they_are_called(name: str) -> None:
    size = SIZES[name]
    millions = parameters(shape_of(name), 11_000) / 1e6
    assert millions == pytest.approx(int(name[:-1]), rel=0.3)
    assert size.step_tokens % size.length == 0
    assert size.hidden_size % (2 * size.num_attention_heads) == 0


# The split: literal values that must never move, and the properties of a partition.


MEMBERS = [46, 88, 154, 268, 293, 343, 401, 455, 527, 547, 655, 722, 734, 752, 944, 979]
MEMBERS_SEED_1 = [20, 50, 187, 340]


def test_members_of_the_validation_part_never_move() -> None:
    members = [number for number in range(1, 1001) if in_valid(f"uk.txt:{number}")]
    assert members == MEMBERS
    assert [number for number in range(1, 401) if in_valid(f"uk.txt:{number}", seed=1)] == MEMBERS_SEED_1
    assert in_valid("стаття", share=0.5) is True
    assert in_valid("стаття", share=0.5, seed=1) is False


@given(st.text(), st.integers(), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_contains_a_smaller_one(text: str, seed: int, one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert not in_valid(text, small, seed) or in_valid(text, large, seed)
    assert not in_valid(text, 0.0, seed)
    assert in_valid(text, 1.0, seed)


# Bits per byte: exact where a vocabulary is large and most of its ids are equally likely.


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


# The loss curve: kept to the bit, and the learning rate.


POINTS = [Point(n, 10 * n, 0.1 * n, 9 / n, 1 / n if n % 50 == 0 else None) for n in range(1, 201)]


def test_a_curve_is_kept_to_the_bit(tmp_path: Path) -> None:
    write_table(tmp_path / "curve.parquet", Point, POINTS)
    assert read_table(tmp_path / "curve.parquet", Point) == POINTS
    assert pq.read_schema(tmp_path / "curve.parquet").names == ["step", "tokens", "seconds", "loss", "bits_per_byte"]
    assert [path.name for path in tmp_path.iterdir()] == ["curve.parquet"]


def test_the_rate_rises_and_falls() -> None:
    rates = [rate_schedule(1000, 2.0)(mx.array(step)).item() for step in range(1000)]
    top = rates.index(max(rates))
    assert max(rates) == pytest.approx(2.0) and 25 <= top <= 35
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 0.04 <= rates[-1] < 0.041
    assert rates[0] > 0
    for step, rate in enumerate(rates):
        rising, fall = (step + 1) / 30, 0.5 * (1 + math.cos(math.pi * (step - 30) / 970))
        assert rate == pytest.approx(2.0 * (rising if step < 30 else 0.02 + 0.98 * fall), rel=1e-5)
    assert rate_schedule(1, 2.0)(mx.array(0)).item() == 2.0
