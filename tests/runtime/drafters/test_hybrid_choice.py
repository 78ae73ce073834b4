"""A hybrid compared with its members alone and with the best choices, on simulated machines."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import pytest

from spectool.lab.hindsight import Clock, Machine, Saved, SavedMember, best_seconds, play, record
from spectool.runtime.draft_length.controller import Controller
from spectool.runtime.drafters.drafter import Drafter, Proposal, accepted_length
from spectool.runtime.drafters.hybrid import HybridDrafter
from spectool.runtime.drafters.lookup import LookupDrafter

CURVES: dict[str, Callable[[int], float]] = {
    "flat": lambda rows: 1 + 0.012 * (rows - 1),
    "rising": lambda rows: 1 + 0.05 * (rows - 1),
    "linear": float,
    "between": lambda rows: 0.8 + 0.2 * rows,
    "steps of 8": lambda rows: float((rows + 7) // 8),
    "another kernel from 2 on": lambda rows: 1.0 if rows == 1 else 2 + 0.02 * rows,
}
# Shares of the positions at which a look-up is so sure of each token; elsewhere it proposes nothing.
LOOK_UPS = {"sure": [(0.25, 0.9)], "mixed": [(0.15, 0.95), (0.3, 0.5), (0.2, 0.2)], "unsure": [(0.4, 0.25)]}
TOKENS, PROMPT, ANSWERS, READING = 64, 40, 30, 0.03


class Model(NamedTuple):
    right: float  # probability of each token
    cost: float  # of a token, in plain passes


MODELS = {"cheap": Model(0.7, 0.1), "dear": Model(0.7, 0.5), "half right": Model(0.5, 0.25), "bad": Model(0.05, 0.3)}
SIMILAR = ("linear", "flat", "steps of 8", "dear", "half right")  # to others, so that they are not tried every time


def texts(shares: Sequence[tuple[float, float]], model: Model, seed: int) -> list[Saved]:
    """Answers in which token i is i, with members whose proposals are right as often as they are said to be."""
    rng, found = random.Random(seed), list[Saved]()

    def proposal(at: int, right: float, stated: bool) -> Proposal:
        end = next((k for k in range(16) if rng.random() >= right), 16)
        tokens = [at + k if k < end else -1 for k in range(16)]
        return Proposal(tokens, "", [right] * 16 if stated else ())

    for _ in range(ANSWERS):
        look_ups = []
        for at in range(TOKENS):
            draw, reach = rng.random(), accumulate(share for share, _ in shares)
            sure = next((p for (_, p), most in zip(shares, reach, strict=True) if draw < most), 0.0)
            look_ups.append(proposal(at, sure, True) if sure else Proposal((), ""))
        models = [proposal(at, model.right, False) for at in range(TOKENS)]
        found.append(Saved([-2] * PROMPT, list(range(TOKENS)), {"look-up": look_ups, "model": models}))
    return found


def speed(machine: Machine, answers: Sequence[Saved], names: Sequence[str], hybrid: bool = False) -> float:
    """Speed against plain decoding, of one member or, in a ``hybrid``, of one or several."""
    clock = Clock()
    members = [SavedMember(name, machine, clock) for name in names]
    drafter: Drafter = HybridDrafter(members, clock=clock) if hybrid or len(members) > 1 else members[0]
    seconds = play(answers, drafter, machine, clock, Controller())
    return sum(len(text.output) for text in answers) * machine.passes(1) / sum(seconds)


def best_speed(
    machine: Machine, answers: Sequence[Saved], shares: Sequence[tuple[float, float]], model: Model
) -> float:
    """Speed of choices that know every probability and cost, but not which tokens are right.

    They are best at the rate at which they are worth no more than it, were there no end. A look-up does not continue a
    model's guess here.
    """

    def best(rate: float, sure: float, left: int = 16) -> tuple[float, str, int]:
        choices = [(1 - rate * machine.passes(1), "look-up", 0)]
        for k in range(1, left + 1):
            for name, right, cost in (("look-up", sure, 0.0), ("model", model.right, model.cost)):
                tokens = sum(right**j for j in range(k + 1))
                choices.append((tokens - rate * (machine.passes(k + 1) + k * cost), name, k))
        return max(choices)

    low, high = 0.4, 16.0
    while high - low > 1e-3:
        rate = (low + high) / 2
        everywhere = [*shares, (1 - sum(share for share, _ in shares), 0.0)]
        worth = sum(share * best(rate, sure)[0] for share, sure in everywhere)
        low, high = (rate, high) if worth > 0 else (low, rate)
    seconds = 0.0
    for answer in answers:
        at = asked = 0
        while at < TOKENS:
            sure = next(iter(answer.proposals["look-up"][at].probabilities), 0.0)
            _, name, length = best(low, sure, min(16, TOKENS - at - 1))
            proposal = answer.proposals[name][at].tokens[:length]
            asked |= name == "model"
            seconds += machine.passes(length + 1) + machine.drafts.get(name, 0.0) * length
            at += accepted_length(proposal, answer.output[at:]) + 1
        seconds += asked * READING * PROMPT
    return TOKENS * len(answers) * machine.passes(1) / seconds


@pytest.mark.parametrize(
    ("curve", "model"),
    [
        pytest.param(curve, model, marks=[pytest.mark.system] * (curve in SIMILAR or model in SIMILAR))
        for curve in CURVES
        for model in MODELS
    ],
)
@pytest.mark.parametrize("look_up", LOOK_UPS)
def test_a_hybrid_is_never_far_below_its_best_member_and_near_the_best_choices(
    curve: str, model: str, look_up: str
) -> None:
    print("seeds 1 to 8")
    machine = Machine(CURVES[curve], {"model": MODELS[model].cost}, READING, 0.05)
    sessions = [texts(LOOK_UPS[look_up], MODELS[model], seed) for seed in range(1, 9)]

    def mean(of: Callable[[list[Saved]], float]) -> float:
        return sum(map(of, sessions)) / len(sessions)

    look_ups, models = (mean(partial(speed, machine, names=[name])) for name in ("look-up", "model"))
    alone = max(1.0, look_ups, models)
    reached = mean(lambda answers: speed(machine, answers, ["look-up", "model"]))
    best = mean(lambda answers: best_speed(machine, answers, LOOK_UPS[look_up], MODELS[model]))
    print(round(reached, 3), round(alone, 3), round(best, 3))
    assert reached >= 0.95 * alone
    assert reached >= 0.9 * best
    if model == "cheap" and look_up != "unsure" and curve in ("flat", "rising", "steps of 8"):
        assert reached >= 1.05 * alone, "their gains add"


@pytest.mark.parametrize("look_up", LOOK_UPS)
@pytest.mark.parametrize("curve", CURVES)
def test_a_hybrid_of_one_drafts_where_its_member_is_sure_enough_for_what_rows_cost(curve: str, look_up: str) -> None:
    print("seeds 1 to 4")
    machine = Machine(CURVES[curve], {}, noise=0.05)
    alone = cut = 0.0
    for seed in range(1, 5):
        answers = texts(LOOK_UPS[look_up], MODELS["bad"], seed)
        alone += speed(machine, answers, ["look-up"]) / 4
        cut += speed(machine, answers, ["look-up"], hybrid=True) / 4
    print(round(alone, 3), round(cut, 3))
    assert cut >= 0.985 * alone
    assert cut >= 0.96
    if look_up == "mixed" and curve in ("between", "another kernel from 2 on"):
        assert cut >= 1.05 * alone


@pytest.mark.parametrize(
    "curve",
    [
        "flat",
        pytest.param("rising", marks=pytest.mark.system),
        pytest.param("between", marks=pytest.mark.system),
        "steps of 8",
    ],
)
@pytest.mark.parametrize("name", ["look-up", "model"])
def test_noise_does_not_stop_drafts_that_pay(curve: str, name: str) -> None:
    print("seeds 1 to 5")
    speeds = []
    for noise in (0.05, 0.3):
        machine = Machine(CURVES[curve], {"model": MODELS["cheap"].cost}, READING, noise)
        sessions = [texts(LOOK_UPS["mixed"], MODELS["cheap"], seed) for seed in range(1, 6)]
        speeds.append(sum(speed(machine, answers, [name], hybrid=True) for answers in sessions) / 5)
    print(*(round(each, 3) for each in speeds))
    assert speeds[1] >= 0.9 * speeds[0]


def test_the_best_in_hindsight_is_the_best_of_all_choices() -> None:
    for seed in range(20):
        print("seed", seed)
        rng = random.Random(seed)
        output = [rng.randrange(3) for _ in range(5)]
        machine = Machine(lambda rows: 1 + 0.3 * rows, {"model": rng.choice([0.1, 0.5])}, 0.01)
        proposals = {
            name: [Proposal([rng.randrange(3) for _ in range(3)], name) for _ in output]
            for name in ("look-up", "model")
        }
        text = Saved([0], output, proposals)

        def least(at: int, text: Saved = text, machine: Machine = machine) -> float:
            """By trying everything; only the model's whole guess, or a part of it, is continued."""
            if at >= len(text.output):
                return 0.0
            found = []
            for k in range(4):
                guess = text.proposals["model"][at].tokens[:k]
                for other in [text.proposals["look-up"][at + k].tokens] if at + k < len(text.output) else [()]:
                    for j in range(len(other) + 1):
                        tokens = [*guess, *other[:j]]
                        rest = text.output[at:]
                        right = next((i for i, t in enumerate(tokens) if i >= len(rest) or t != rest[i]), len(tokens))
                        if j and right < k:
                            continue  # it was asked for a text that is not
                        seconds = k * machine.drafts["model"] + machine.passes(len(tokens) + 1)
                        found.append(seconds + least(at + right + 1, text, machine))
            return min(found)

        reading = machine.reading * len(text.prompt)
        machine_without = machine._replace(drafts={"model": 99.0})
        expected = min(least(0) + reading, least(0, text, machine_without))
        assert best_seconds(text, machine, ["look-up", "model"]) == pytest.approx(expected)


def test_what_is_recorded_is_what_a_drafter_proposes() -> None:
    output = [5, 6, 7, 8, 5, 6, 7, 8, 5]
    saved = record([1, 5, 6], output, {"look-up": LookupDrafter(history=True)}, 3)
    drafter = LookupDrafter(history=True)
    drafter.start([1, 5, 6])
    for at, token in enumerate(output):
        assert saved.proposals["look-up"][at] == drafter.propose(3)
        drafter.commit([token])
