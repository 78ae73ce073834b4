"""Samplers with a known distribution: equal to mlx-lm's, in what they say and in what they draw."""

import math
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.sample_utils import make_logits_processors, make_sampler

from spectool import RuntimeUnsupported
from spectool.runtime.sampling.samplers import Sampling, WrongSetting, block_sum, log_probabilities, processed
from spectool.runtime.sampling.samplers import make_logits_processors as checked_processors
from spectool.runtime.sampling.verification import Draw
from spectool.tests.runtime.distributions import FALSE_ALARM, filtered, p_value
from spectool.tests.tiers import nightly

VOCABULARY = 12
DRAWS = 100_000
SETTINGS: dict[str, dict[str, Any]] = {
    "temperature": {"temp": 0.7},
    "top-p": {"temp": 1.0, "top_p": 0.8},
    "min-p": {"temp": 1.3, "min_p": 0.2},
    "top-k": {"temp": 0.8, "top_k": 4},
    "xtc": {"temp": 1.0, "xtc_probability": 0.5, "xtc_threshold": 0.1},
    "xtc but for one": {"temp": 1.0, "xtc_probability": 0.3, "xtc_threshold": 0.05, "xtc_special_tokens": [0, 3]},
    "xtc always": {"temp": 1.0, "xtc_probability": 1.0, "xtc_threshold": 0.1},
    "all": {"temp": 0.8, "top_p": 0.95, "min_p": 0.02, "top_k": 6, "xtc_probability": 0.4, "xtc_threshold": 0.08},
}


pytestmark = pytest.mark.usefixtures("interpreted")


def logits_of(seed: int, rows: int = 1, vocabulary: int = VOCABULARY) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1.5, (rows, vocabulary)).astype(np.float32)


def normalised(logits: np.ndarray, dtype: mx.Dtype = mx.float32) -> mx.array:
    return log_probabilities(mx.array(logits).astype(dtype))


def test_many_rare_tokens_are_not_lost_in_a_sum() -> None:
    """A float32 sum of 262,144 tokens one after the other leaves out a part of them."""
    for tokens in (262_144, 151_936, 50_257):  # a square, and not
        weights = np.full(tokens, 0.03 / tokens, np.float32)
        weights[0] = 0.9
        whole = weights.astype(np.float64).sum()
        assert float(block_sum(mx.array(weights))) == pytest.approx(whole, rel=2e-5)
        chosen = Sampling(temp=1.0).probabilities(mx.log(mx.array(weights)))
        assert float(chosen[0]) == pytest.approx(0.9 / whole, rel=5e-5)
        assert np.array(chosen).astype(np.float64).sum() == pytest.approx(1, abs=5e-5)


@pytest.mark.parametrize("name", list(SETTINGS))
def test_probabilities_equal_those_by_hand(name: str) -> None:
    sampling = Sampling(**SETTINGS[name])
    logits = logits_of(1, rows=200)
    got = np.array(sampling.probabilities(normalised(logits)))
    assert got.dtype == np.float32
    for row in range(len(logits)):
        assert got[row] == pytest.approx(filtered(sampling, logits[row].astype(np.float64)), abs=1e-5), f"row {row}"


@pytest.mark.parametrize(
    "sampling", [Sampling(top_p=0.5, top_k=3), Sampling(2.0, top_p=0, xtc_probability=1.0, xtc_threshold=0.0)]
)
def test_temperature_zero_and_top_p_zero_take_the_most_probable_token(sampling: Sampling) -> None:
    logits = mx.array(logits_of(2, rows=64))
    best = mx.argmax(logits, axis=-1)
    assert mx.array_equal(sampling(logits), best)
    assert mx.array_equal(sampling.probabilities(logits), mx.eye(VOCABULARY)[best])


@pytest.mark.parametrize("dtype", [mx.bfloat16, *nightly(mx.float32)], ids=str)
@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in ("xtc but for one", "xtc always")])
@pytest.mark.parametrize("coins", [300, *nightly(1500)])
def test_mlx_lm_draws_from_them(name: str, dtype: mx.Dtype, coins: int) -> None:
    settings, logprobs = SETTINGS[name], normalised(logits_of(30), dtype)
    mx.random.seed(5)
    host = make_sampler(**settings)
    if "xtc_probability" in settings:  # it tosses a coin for each call
        drawn = mx.concatenate([host(logprobs) for _ in range(coins)])
    else:
        drawn = host(mx.broadcast_to(logprobs, (DRAWS, VOCABULARY)))
    said = np.array(Sampling(**settings).probabilities(logprobs)[0], dtype=np.float64)
    p = p_value(np.bincount(np.array(drawn), minlength=VOCABULARY), said)
    print(f"{name} {dtype}: p {p:.3g}, seed 5")
    assert p > FALSE_ALARM


@pytest.mark.parametrize("name", list(SETTINGS))
def test_one_row_is_mlx_lms_own_draw(name: str) -> None:
    logprobs = normalised(logits_of(4))
    drawn = []
    # Ours needs no normalised logits.
    for sampler, rows in ((make_sampler(**SETTINGS[name]), logprobs), (Sampling(**SETTINGS[name]), logprobs + 80.0)):
        mx.random.seed(11)
        drawn.append([int(sampler(rows)) for _ in range(20)])
    assert drawn[0] == drawn[1]


def test_rows_of_xtc_do_not_share_a_coin() -> None:
    # Half the rows leave out token 0 or 1: a shared coin would make all rows agree.
    logprobs = normalised(np.log(np.array([[0.6, 0.4]] * 64)))
    sampling = Sampling(temp=1.0, xtc_probability=0.5, xtc_threshold=0.3)
    mx.random.seed(0)
    ones = int(mx.sum(sampling(logprobs)))
    assert 32 < ones < 64, ones  # P(1) = 0.5 * 0.4 + 0.5


DRAW_SAMPLING = Sampling(temp=0.8, top_p=0.9)


@pytest.mark.parametrize("count", [200, *nightly(500)])
def test_drafts_are_drawn_from_what_is_told(count: int) -> None:
    processors = tuple(make_logits_processors({2: 1.5}, repetition_penalty=1.4))
    draw = Draw(DRAW_SAMPLING, processors, VOCABULARY)
    logits, history = logits_of(7), mx.array([1, 1, 4])
    mx.random.seed(13)
    token, distribution = draw(mx.array(logits), history)
    assert token.shape == (1,)
    assert distribution.shape == (1, VOCABULARY)
    drawn = np.array(mx.concatenate([draw(mx.array(logits), history)[0] for _ in range(count)]))
    changed = mx.array(logits)
    for processor in processors:
        changed = processor(history, changed)
    exact = filtered(DRAW_SAMPLING, np.array(changed[0], dtype=np.float64))
    assert np.array(distribution[0]) == pytest.approx(exact, abs=1e-5)
    p = p_value(np.bincount(drawn, minlength=VOCABULARY), exact)
    print(f"p {p:.3g}, seed 13")
    assert p > FALSE_ALARM


@pytest.mark.parametrize("count", [60, *nightly(200)])
@pytest.mark.parametrize("size", [VOCABULARY - 4, VOCABULARY + 4])
def test_a_draft_with_other_rows_draws_within_the_targets(size: int, count: int) -> None:
    # The bias names an id that a smaller draft does not have.
    draw = Draw(DRAW_SAMPLING, tuple(make_logits_processors({VOCABULARY - 1: 2.0})), VOCABULARY)
    logits = logits_of(8, vocabulary=size)
    _, distribution = draw(mx.array(logits), mx.array([1]))
    assert distribution.shape == (1, VOCABULARY)
    assert float(mx.sum(distribution)) == pytest.approx(1.0, abs=1e-5)
    assert np.array(distribution[0, size:]).sum() == 0
    tokens = {int(draw(mx.array(logits), mx.array([1]))[0]) for _ in range(count)}
    assert max(tokens) < min(size, VOCABULARY)


def test_a_token_forced_on_a_draft_that_has_it_not() -> None:
    def force(tokens: mx.array, logits: mx.array) -> mx.array:
        return mx.where(mx.arange(logits.shape[-1]) == VOCABULARY - 1, 0.0, -mx.inf)[None]

    logits = mx.array(logits_of(9, vocabulary=VOCABULARY - 1))
    token, distribution = Draw(DRAW_SAMPLING, (force,), VOCABULARY)(logits, mx.array([1]))
    assert int(token) < VOCABULARY - 1
    # A distribution all the same, its own.
    assert distribution[0, :-1].tolist() == pytest.approx(mx.softmax(logits[0]).tolist(), abs=1e-5)
    assert float(distribution[0, -1]) == 0


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ("temp", [-0.1, math.nan, math.inf, 10**400, "1", None, 1e-9, 1e-320, True]),
        ("top_p", [-0.1, 1.1, math.nan, None]),
        ("min_p", [-1, 2.0, math.nan]),
        ("top_k", [-1, 3.0, math.nan, None, True]),
        ("xtc_probability", [-0.5, 1.5, math.nan]),
        ("xtc_threshold", [0.6, 0.9, -0.1, math.nan, math.inf]),
    ],
)
def test_wrong_settings_are_named_when_it_is_made(setting: str, wrong: list[Any]) -> None:
    for value in wrong:
        with pytest.raises(RuntimeUnsupported, match=rf"^{setting}: expected .*, got "):
            Sampling(**{"temp": 0.7, setting: value})
    assert mx.random.uniform().item() >= 0


def test_settings_at_their_limits_and_numbers_of_numpy() -> None:
    logits = mx.random.normal((2, 16))
    for settings in (
        {"top_k": 16},
        {"top_k": 10**9},
        {"top_k": np.int64(3), "temp": np.float32(0.5)},
        {"min_p": 1},
        {"top_p": 1, "xtc_probability": 1, "xtc_threshold": 0},
        {"xtc_probability": 0.5, "xtc_threshold": 0.5, "xtc_special_tokens": [1, 16, 10**9]},
    ):
        sampling = Sampling(**{"temp": 0.9, **settings})  # type: ignore[arg-type]
        assert sampling(log_probabilities(logits)).shape == (2,)
        assert mx.allclose(block_sum(sampling.probabilities(logits)), mx.ones(2))
    everything = Sampling(0.9, top_k=10**9).probabilities(logits)
    assert mx.array_equal(everything, Sampling(0.9).probabilities(logits))


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ("repetition_penalty", [-1, 1e-300, 5e-324, 1e7, 10**400, math.nan, math.inf, "1", True]),
        ("presence_penalty", [-1e7, 1e308, -(10**400), math.nan, -math.inf, "1", [1]]),
        ("frequency_penalty", [-1e7, 1e308, 10**400, math.nan, math.inf]),
        ("repetition_context_size", [-1, 2**31, 10**400, 1.5, None, "1", True]),
        ("logit_bias", [{5: math.nan}, {5: math.inf}, {5: 1e31}, {5: "1"}, {5: None}]),
    ],
)
def test_wrong_penalties_and_biases_are_named(setting: str, wrong: list[Any]) -> None:
    for value in wrong:
        with pytest.raises(WrongSetting, match=rf"^{setting}: expected .*, got ") as raised:
            checked_processors(**{setting: value})
        assert raised.value.name == setting


def test_the_largest_biases_and_penalties_together_leave_probabilities() -> None:
    extremes: list[dict[str, Any]] = [
        {"repetition_penalty": penalty, "presence_penalty": other, "frequency_penalty": other, "logit_bias": {3: bias}}
        for penalty in (1e-6, 1e6, None)
        for other in (-1e6, 1e6, 0)
        for bias in (1e30, -1e30)
    ]
    tokens = mx.array([3] * 30 + [1, 2])
    for settings in extremes:
        logits = processed(mx.random.normal((1, 16)), checked_processors(**settings), tokens)
        assert mx.isfinite(log_probabilities(logits)).all(), settings
        for temperature in (1e-6, 1.0, 1e308):
            assert mx.allclose(block_sum(Sampling(temperature).probabilities(logits)), mx.ones(1)), settings


@pytest.mark.parametrize(
    ("presence", "frequency", "expected"),
    # After the prompt 1 2 4, the answer has 30 times 4, and 5.
    [(0, 0, [0, 0, 0]), (1.5, 0, [0, -1.5, -1.5]), (0, 0.5, [0, -15, -0.5]), (-1, 0.5, [0, -14, 0.5])],
)
def test_presence_and_frequency_count_all_of_an_answer(
    presence: float, frequency: float, expected: list[float]
) -> None:
    sizes = {"presence_context_size": 0, "frequency_context_size": 0}
    penalties = {"presence_penalty": presence, "frequency_penalty": frequency, "repetition_penalty": 2}
    processors = checked_processors({2: 8}, skip=3, **penalties, **sizes)
    for answer, right in (([4] * 30 + [5], expected), ([], [0, 0, 0])):
        logits = processed(mx.zeros((1, 6)), processors, mx.array([1, 2, 4, *answer]))
        assert logits[0, [1, 4, 5]].tolist() == right
        assert logits[0, 2].item() == (8 if answer else 4), "a repetition of the prompt within the latest 20 tokens"
