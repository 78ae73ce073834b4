"""Texts that an answer is expected to repeat: where they are followed, how far, and what wrong ones cost."""

import random
from collections.abc import Callable, Sequence
from itertools import product
from time import process_time
from typing import Any

import pytest

from spectool.measure.replay import replay
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.drafter import Drafter, DrafterSet
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.drafters.prediction import PredictionDrafter
from spectool.runtime.policy.curve import PassCurve
from spectool.runtime.policy.policy import Policy
from spectool.tests.runtime.decoding.test_lossless import TIE, compare
from spectool.tests.runtime.fake_drafters import Guesser
from spectool.tests.runtime.models import perturbed, plain, prompts, tiny_model
from spectool.tests.tiers import nightly

CURVES: dict[str, Callable[[int], float]] = {  # seconds of a pass by its tokens
    "flat": lambda tokens: 1 + 0.012 * (tokens - 1),
    "between": lambda tokens: 0.8 + 0.2 * tokens,
    "linear": float,
}


def proposed(drafter: Drafter, limit: int = 64) -> list[int]:
    return list(drafter.propose(limit).tokens)


def test_the_answer_is_followed_left_and_found_again() -> None:
    drafter = PredictionDrafter(range(100, 200))
    drafter.start([1, 2, 3])
    assert proposed(drafter) == list(range(100, 108)), "the beginning of the answer"
    drafter.commit(range(100, 110))
    assert proposed(drafter) == list(range(110, 150)), "longer, the more has matched"
    assert proposed(drafter, 5) == list(range(110, 115))
    drafter.commit([7, 8, 9])
    assert (proposed(drafter), drafter.found, drafter.may_propose()) == ([], False, True)
    drafter.commit([150])
    assert not drafter.found, "one token alone may be a coincidence"
    drafter.commit([151])
    assert proposed(drafter) == list(range(152, 160))
    drafter.commit(range(152, 200))
    assert (proposed(drafter), drafter.found, drafter.repeated) == ([], False, 60)
    drafter.commit([7] * 20)
    assert not drafter.may_propose()
    drafter.commit([100, 101])
    assert drafter.may_propose() and proposed(drafter) == list(range(102, 110)), "an answer may begin again"
    drafter.start([])
    assert (proposed(drafter)[0], drafter.repeated) == (100, 0)


def test_of_equal_places_the_next_one_is_taken() -> None:
    """A phrase 5 6 that occurs every ten tokens, and an answer that leaves out, puts in, or changes something."""
    text = [token for row in range(10) for token in (5, 6, *range(100 + 10 * row, 108 + 10 * row))]
    for gone, put in ((3, 0), (0, 4), (4, 4), (20, 1)):
        drafter = PredictionDrafter(text)
        drafter.commit([*text[:35], *[7] * put])
        drafter.commit(text[35 + gone : 42 + gone + 20])
        assert proposed(drafter, 3) == text[62 + gone : 65 + gone], (gone, put)
    drafter = PredictionDrafter(text)
    drafter.commit([*text[:35], 7, 5, 6])
    assert proposed(drafter, 3) == text[42:45]
    assert proposed(PredictionDrafter([])) == proposed(PredictionDrafter([]), 0) == []


def written(answer: Sequence[int], prediction: Sequence[int], policy: Policy, *others: Drafter) -> tuple[int, float]:
    """The passes that an answer takes, and their time in plain ones, where they take what the policy says."""
    costs = list[float]()
    replay([answer], DrafterSet([PredictionDrafter(prediction), *others]), policy, lambda _, cost: costs.append(cost))
    return len(costs), sum(costs)


def policy_of(curve: str) -> Policy:
    """One that knows what passes cost."""
    points = {rows: CURVES[curve](rows) for rows in range(1, 66)}
    return Policy(PassCurve({0: points}, {0: points[1]}))


def edited(rng: random.Random, text: Sequence[int], places: int) -> list[int]:
    """The text with a tenth of its tokens changed, in this many places."""
    new, each = list(text), len(text) // 10 // places
    for place in sorted(rng.sample(range(0, len(text) - each, each), places), reverse=True):
        new[place : place + each] = rng.choices(range(1000, 2000), k=rng.randint(0, 2 * each))
    return new


@pytest.mark.parametrize(("curve", "places"), [("flat", 1), ("flat", 8), ("between", 1), ("between", 4)])
def test_an_edit_of_a_tenth_takes_a_fifth_of_the_passes(curve: str, places: int, rng: random.Random) -> None:
    shares = list[float]()
    for _ in range(12):
        file = rng.choices(range(300), k=400)
        answer = edited(rng, file, places)
        shares.append(written(answer, file, policy_of(curve))[0] / len(answer))
    assert sum(shares) / len(shares) <= 0.2


def test_a_drafter_that_does_not_pay_does_not_keep_a_prediction_from_drafting() -> None:
    rng, policy = random.Random(6), policy_of("between")
    for _ in range(3):
        text = rng.choices(range(300), k=400)
        assert written(text, [], policy, Guesser())[0] > 350
        assert written(text, text, policy, Guesser())[0] <= 40


@pytest.mark.parametrize("curve", ["between", *nightly("flat", "linear")])
def test_a_prediction_of_another_text_costs_two_percent(curve: str, rng: random.Random) -> None:
    lost = list[float]()
    for _ in range(10):
        file, answer = (rng.choices(range(300), weights=range(300, 0, -1), k=400) for _ in range(2))
        lost.append(written(answer, file, policy_of(curve))[1] / len(answer) - 1)
    assert sum(lost) / len(lost) <= 0.02


def test_time_for_a_token_does_not_grow_with_the_prediction() -> None:
    def seconds(length: int) -> tuple[float, float]:
        tokens = [place % 997 % 300 for place in range(length)]
        began = process_time()
        drafter = PredictionDrafter(tokens)
        prepared = process_time()
        for _ in range(400):
            drafter.commit([7, 301, *tokens[length // 2 : length // 2 + 8]])
            drafter.propose(64)
        return prepared - began, process_time() - prepared

    best = [[min(part) for part in zip(*map(seconds, [length] * 5), strict=True)] for length in (20_000, 160_000)]
    (short_before, short_each), (long_before, long_each) = best
    assert long_before < 8 * 3 * short_before
    assert long_each < 3 * short_each


@pytest.mark.parametrize(
    ("kind", "lengths"),
    [("llama", [None]), *nightly(*((kind, [None, 16, 0]) for kind in ("llama", "qwen3_5", "gemma3_text")))],
)
def test_the_text_is_that_of_plain_decoding(kind: str, lengths: Sequence[int | None]) -> None:
    """Alone and with other drafters, where the prediction is right, mostly right, or has ids that no model has."""
    model, prompt, rng = tiny_model(kind), prompts(2)[1], random.Random(5)
    others = DrafterSet([LookupDrafter(history=True), ModelDrafter(perturbed(model, kind=kind, noise=0.03))])
    expected, by = plain(model, prompt, 60), DraftStatistics().proposed_by
    wrong = [token if rng.random() < 0.9 else rng.randrange(256) for token in expected]
    for drafter, prediction, length in product((None, others), (expected, wrong, [999, -1, *expected]), lengths):
        statistics, follower = DraftStatistics(), PredictionDrafter(prediction)
        options: Any = {"prediction": follower, "num_draft_tokens": length, "statistics": statistics}
        steps = generate_step(prompt, model, drafter=drafter, max_tokens=60, **options)
        got = [token for token, _, _ in steps]
        compare(model, prompt, expected, got, TIE[None])
        by += statistics.proposed_by
        assert length != 0 or not statistics.proposed
        if prediction is expected and got == expected:
            assert follower.repeated == 60
            assert length != 16 or statistics.passes <= 6
    assert by["prediction"] and by["history"]
