"""The draft length chosen on simulated machines, whose seconds are exact, and on a real model."""

from collections.abc import Callable, Sequence
from itertools import pairwise, product
from statistics import median
from time import perf_counter, sleep

import mlx.core as mx
import pytest

from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.guarded_drafter import GuardedDrafter
from spectool.runtime.decoding.proposer import Proposer
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.draft_length.controller import Controller
from spectool.runtime.draft_length.timings import RECENT_SAMPLES
from spectool.runtime.drafters.drafter import Drafter
from spectool.tests.runtime.decoding.test_lossless import TIE, compare
from spectool.tests.runtime.draft_length.simulated_machine import (
    CURVES,
    DRAFTERS,
    NOISY,
    QUIET,
    STEADY,
    Machine,
    speedup,
)
from spectool.tests.runtime.fake_drafters import Guesser, Reference
from spectool.tests.runtime.models import plain, prompts, tiny_model


@pytest.mark.parametrize("draft", DRAFTERS)
@pytest.mark.parametrize("curve", CURVES)
def test_a_useless_drafter_costs_less_than_three_percent(curve: str, draft: str) -> None:
    for conditions in (QUIET, NOISY):
        for seed in (1, 2):
            steps = Machine(CURVES[curve], draft, lambda at: 0.0, seed, **conditions).run(1500)
            assert speedup(steps) >= 0.97
            assert speedup(steps, 0, STEADY) >= 0.95  # the first tries


@pytest.mark.parametrize("draft", DRAFTERS)
@pytest.mark.parametrize("curve", CURVES)
def test_a_perfect_drafter_is_used_at_its_best_within_fifty_cycles(curve: str, draft: str) -> None:
    for conditions, share in ((QUIET, 0.95), (NOISY, 0.93)):
        for seed in (1, 2):
            machine = Machine(CURVES[curve], draft, lambda at: 1.0, seed, **conditions)
            steps = machine.run(1000)
            speeds = [machine.speed(step.length, 1.0) / machine.best(1.0) for step in steps[50:90]]
            # The middle one of the cycles, since a look at another length may fall among them.
            assert sorted(speeds)[len(speeds) // 2] >= share


@pytest.mark.system
@pytest.mark.parametrize("right", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("contexts", [(0,), (0, 1000, 9000)], ids=["same length", "other lengths"])
@pytest.mark.parametrize("draft", DRAFTERS)
@pytest.mark.parametrize("curve", CURVES)
def test_short_generations_go_on_with_what_earlier_ones_have_learnt(
    curve: str, draft: str, contexts: Sequence[int], right: float
) -> None:
    for conditions, seed in product((QUIET, NOISY), (1, 2, 3, 4)):
        machine = Machine(CURVES[curve], draft, lambda at: right, seed, growth=0.001, **conditions)
        answers = machine.answer(48, 40, contexts)
        # All after the first few together: one alone is over before it has learnt anything.
        reached = speedup([step for answer in answers[4:] for step in answer], 0)
        # What hardly loses or gains anything cannot be told from what does: its times are 5% off.
        assert reached >= 0.97
        if right == 1.0 and len(contexts) == 1:
            assert reached >= 0.93 * machine.best(1.0) / machine.speed(0, 1.0)


@pytest.mark.system
@pytest.mark.parametrize("times", [3, 10, 20])
@pytest.mark.parametrize("draft", DRAFTERS)
def test_a_machine_that_was_busy_once_is_found_free_again(draft: str, times: float) -> None:
    for seed in (1, 2, 3, 4):
        machine = Machine(CURVES["flat, a GPU"], draft, lambda at: 0.85, seed, **NOISY)
        # Everything takes so many times as long for one answer, then for the beginning of a long one.
        machine.pace = lambda at: times
        machine.generate(400)
        machine.pace = lambda at: 1.0
        answers = []
        for _ in range(60):
            answers.append(machine.generate(100))
        best = machine.best(0.85) / machine.speed(0, 0.85)
        assert speedup([step for answer in answers[30:] for step in answer], 0) >= 0.85 * best
        machine.pace = lambda at: times if at < 200 else 1.0
        assert speedup(machine.run(10_000), 5000) >= 0.6 * best


@pytest.mark.parametrize("prompt", [200, 2000])
def test_a_useless_drafter_does_not_read_every_prompt(prompt: int) -> None:
    """Reading a prompt of 200 tokens takes it as long as six plain passes, and each answer has 100."""
    for seed in (1, 2, 3, 4):
        reading = {"per_missed": 0.03, "prompt": prompt}
        machine = Machine(CURVES["flat, a GPU"], "large model", lambda at: 0.1, seed, **reading, **NOISY)
        answers = machine.answer(100, 60, (0,))
        read = sum(any(step.asked for step in answer) for answer in answers[10:])
        assert speedup([step for answer in answers[10:] for step in answer], 0) >= 0.97, f"{read} of 50 prompts read"


def test_a_slow_consumer_is_forgotten() -> None:
    for seed in (1, 2, 3, 4):
        machine = Machine(CURVES["flat, a GPU"], "lookup", lambda at: 0.8, seed, consumer=2.0, **NOISY)
        machine.generate(100)
        machine.consumer = 0.0
        answers = []
        for _ in range(20):
            answers.append(machine.generate(100))
        assert speedup([step for answer in answers[10:] for step in answer], 0) >= 0.85 * machine.best(0.8)


@pytest.mark.system
@pytest.mark.parametrize("consumer", [0.3, 0.95, 2.0, 10.0])
@pytest.mark.parametrize("draft", DRAFTERS)
@pytest.mark.parametrize("curve", CURVES)
def test_no_consumer_makes_drafting_slower_than_plain_decoding(curve: str, draft: str, consumer: float) -> None:
    for share, seed in product((0.0, 0.5, 1.0), (1, 2)):
        right: Callable[[int], float] = lambda at, share=share: share  # noqa: E731
        machine = Machine(CURVES[curve], draft, right, seed, consumer=consumer, **NOISY)
        answers = machine.answer(150, 20, (0,))
        assert speedup([step for answer in answers[2:] for step in answer], 0) >= 0.95


def test_the_time_of_plain_passes_is_the_wall_time_of_a_token_whatever_the_caller_does() -> None:
    model, prompt = tiny_model(), prompts(1)[0]
    for seconds in (0.0, 0.02):
        controller, times = Controller(), list[float]()
        controller.keep_exact(0)
        steps = generate_step(mx.array(prompt), model, drafter=Guesser(), num_draft_tokens=controller, max_tokens=60)
        for _, logprobs, _ in steps:
            mx.eval(logprobs + 1)  # waits for the pass under way, as mlx-lm's server does
            sleep(seconds)
            times.append(perf_counter())
        controller.passes.update()
        # Of the passes that it went by, the latest ones: other work on the machine comes and goes.
        typical = median(after - before for before, after in pairwise(times[-RECENT_SAMPLES - 1 :]))
        assert 0.5 * typical <= max(controller.passes.curve[1], controller.caller_seconds) <= 2 * typical


@pytest.mark.parametrize("acceptance", [0.5, 0.9])
@pytest.mark.parametrize(
    "draft", [pytest.param(name, marks=[pytest.mark.slow] * (name != "lookup")) for name in DRAFTERS]
)
@pytest.mark.parametrize("curve", CURVES)
def test_a_drafter_that_is_partly_right_never_slows_down(curve: str, draft: str, acceptance: float) -> None:
    shares = []
    for seed in (1, 2):
        machine = Machine(CURVES[curve], draft, lambda at: acceptance, seed, **NOISY)
        steps = machine.run(2500)
        assert speedup(steps) >= 0.97
        shares.append(speedup(steps) / machine.best(acceptance))
    print([round(share, 3) for share in shares])
    assert max(shares) >= 0.85


def test_it_reacts_when_the_text_changes_kind() -> None:
    for curve in ("flat, a GPU", "steps of 8"):
        for seed in (1, 2):
            machine = Machine(CURVES[curve], "small model", lambda at: float(1000 <= at < 2000), seed, **NOISY)
            steps = machine.run(3500)
            assert speedup(steps, 500, 1000) >= 0.96
            assert speedup(steps, 1300, 2000) >= 0.85 * machine.best(1.0)
            after = [step for step in steps if step.at >= 2000]
            assert sum(step.seconds - step.plain for step in after) <= 32 + 0.02 * 1500 + 3
            assert speedup(steps, 2500) >= 0.96


def test_passes_that_get_slower_with_the_context_are_followed() -> None:
    useless = Machine(CURVES["flat, a GPU"], "small model", lambda at: 0.0, 1, growth=0.001, **NOISY)
    assert speedup(useless.run(3000)) >= 0.97
    perfect = Machine(CURVES["flat, a GPU"], "small model", lambda at: 1.0, 1, growth=0.001, **NOISY)
    # The drafter does not slow down with it, so the gain is larger than without growth.
    assert speedup(perfect.run(3000)) >= 0.95 * perfect.best(1.0)


def test_a_drafter_without_guesses_is_hardly_asked() -> None:
    machine = Machine(CURVES["flat, a GPU"], "large model", lambda at: 1.0, 1, longest_proposal=0, **NOISY)
    steps = machine.run(2000)
    assert speedup(steps) >= 0.97
    assert 0 < sum(step.asked for step in steps if step.at > STEADY) <= 0.05 * 1500


def test_short_proposals_are_no_reason_to_stop() -> None:
    machine = Machine(CURVES["flat, a GPU"], "lookup", lambda at: 0.9, 1, longest_proposal=3, **NOISY)
    steps = machine.run(2000)
    assert speedup(steps) >= 0.95 * machine.speed(3, 0.9)


def test_a_drafter_that_has_to_catch_up_is_asked_the_more_rarely() -> None:
    machine = Machine(CURVES["flat, a GPU"], "small model", lambda at: 0.0, 1, per_missed=0.05, **NOISY)
    assert speedup(machine.run(4000)) >= 0.96


def test_plain_passes_come_first_and_the_first_of_them_does_not_count() -> None:
    controller = Controller()
    for seconds in (9.0, 1.0):
        assert controller.choose() == 0
        controller.learn(committed=1, pass_seconds=seconds)
    assert controller.choose() == 1
    assert controller.passes.measured() == {1: 1.0}
    assert controller.state() is None


def test_tokens_fed_again_are_the_price_of_drafting() -> None:
    controller = Controller()
    for _ in range(3):
        controller.learn(committed=1, pass_seconds=1.0)
    for _ in range(20):
        controller.learn(committed=1, pass_seconds=5.0, refed=4)
    controller.choose()
    assert controller.passes.curve[1] == 1.0


def test_a_drafter_that_is_not_asked_hears_everything_before_it_is_asked_again() -> None:
    drafter = Reference([])
    proposer = Proposer(GuardedDrafter(drafter, DraftStatistics()), Controller(), 100)
    proposer.start([1])
    asked = []
    for token in range(60):
        proposer.propose(16)
        if len(drafter.limits) > len(asked):
            asked.append(token)
            assert drafter.committed == list(range(token))
        proposer.commit((token,))
    # The first two cycles are plain.
    assert asked[0] == 2
    assert len(asked) < 60


@pytest.mark.parametrize("name", ["perfect", "partly right", "useless"])
def test_the_output_is_that_of_plain_decoding(name: str) -> None:
    model, ties = tiny_model(), 0
    for seed, prompt in enumerate(prompts(4)):
        expected = plain(model, prompt, 60)
        makers: dict[str, Callable[[], Drafter]] = {
            "perfect": lambda text=expected: Reference(text),
            "partly right": lambda text=expected, seed=seed: Reference(text, wrong=0.4, seed=seed),
            "useless": lambda seed=seed: Guesser(seed=seed),
        }
        total = DraftStatistics()
        options = {"max_tokens": 60, "num_draft_tokens": None, "statistics": total}
        steps = generate_step(mx.array(prompt), model, drafter=makers[name](), **options)
        ties += compare(model, prompt, expected, [token for token, _, _ in steps], TIE[None])
        assert total.tokens == 60
        assert total.proposed > 0
        assert total.controller is not None
    assert ties <= 1


def test_what_was_learnt_is_what_was_measured() -> None:
    machine = Machine(CURVES["between"], "small model", lambda at: 0.9, 3)
    machine.run(2000)
    learnt = machine.controller.state()
    assert learnt is not None and learnt.speedup is not None
    assert machine.speed(learnt.draft_length, 0.9) >= 0.9 * machine.best(0.9)
    assert learnt.speedup == pytest.approx(machine.best(0.9), rel=0.25)
    assert (learnt.draft_ms, learnt.draft_token_ms) == (pytest.approx(20), pytest.approx(70))
    assert learnt.pass_ms[1] == pytest.approx(1000)
    assert repr(machine.controller).startswith(f"<Controller: draft length {learnt.draft_length} after ")


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("acceptance", [0.0, 0.1, 0.5])
def test_what_is_said_of_the_speed_is_never_far_above_what_the_machine_gives(curve: str, acceptance: float) -> None:
    for seed, tokens in product((1, 2), (20, 60, 200)):
        machine = Machine(CURVES[curve], "lookup", lambda at: acceptance, seed)
        steps = machine.run(tokens)
        verified = sum(min(step.length, machine.longest_proposal) for step in steps)
        learnt = machine.controller.state()
        assert machine.controller.verified == verified
        assert (learnt is None) == (verified < 16)
        if learnt is not None and learnt.speedup is not None:
            assert learnt.speedup <= 1.6 * max(1.0, machine.best(acceptance)), (tokens, learnt)
