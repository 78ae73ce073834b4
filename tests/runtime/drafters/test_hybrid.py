"""Which source a hybrid asks, which proposal it takes and what it learns."""

import random
import subprocess
import sys
from collections.abc import Sequence

import pytest

from spectool.runtime.decoding.drafter import Drafter, Proposal
from spectool.runtime.drafters.hybrid import (
    BUDGET,
    LOSS_PER_PASS,
    HybridDrafter,
    best_draft_length,
    expected_accepted_length,
)
from spectool.tests.runtime.fake_drafters import Failing, Fixed


class Costly(Fixed):
    costs_a_pass = True

    def __init__(self, tokens: list[int]) -> None:
        super().__init__(tokens, "costly")
        self.asked = 0
        self.seen: list[int] = []

    def propose(self, limit):
        self.asked += 1
        return super().propose(limit)

    def commit(self, tokens):
        self.seen += tokens


def test_expected_length_is_the_sum_of_the_products() -> None:
    for acceptance in (0.0, 0.3, 0.99, 1.0):
        for count in (0, 1, 5):
            total = sum(acceptance**i for i in range(1, count + 1))
            assert expected_accepted_length([acceptance] * count) == pytest.approx(total)


def test_the_best_draft_length_is_the_best_of_all() -> None:
    for acceptance in (0.0, 0.2, 0.5, 0.9, 1.0):
        for cost in (0.0, 0.05, 0.3, 2.0):
            rates = [(1 + expected_accepted_length([acceptance] * k)) / (1 + k * cost) for k in range(9)]
            length, rate = best_draft_length(acceptance, cost, 8)
            assert rate == pytest.approx(max(rates)) == pytest.approx(rates[length])


def test_with_equal_acceptance_the_longer_proposal_wins() -> None:
    hybrid = HybridDrafter([Fixed([1], "short"), Fixed([2, 3], "long")])
    assert isinstance(hybrid, Drafter)
    hybrid.start([9])
    assert hybrid.propose(8).source == "long"
    assert len(hybrid.propose(1).tokens) == 1


def test_acceptance_is_learnt_also_from_proposals_not_taken() -> None:
    hybrid = HybridDrafter([Fixed([1, 2], "right"), Fixed([7, 7, 7, 7], "wrong")])
    hybrid.start([9])
    assert hybrid.propose(4).source == "wrong"
    for _ in range(5):
        hybrid.propose(4)
        hybrid.commit([1, 2, 3])
    assert hybrid.propose(4).source == "right"
    acceptance = hybrid.acceptance()
    assert acceptance["right"] > 0.8 and acceptance["wrong"] < 0.3
    hybrid.start([9])
    assert hybrid.acceptance() == acceptance, "the next text is much like this one"
    for _ in range(300):
        hybrid.commit([1])
    assert hybrid.acceptance()["wrong"] == pytest.approx(0.5, abs=0.01), "what is not asked is forgiven in time"


def test_a_proposal_that_outlasts_the_cycle_is_not_contradicted() -> None:
    hybrid = HybridDrafter([Fixed([1, 2, 3, 4], "long")])
    hybrid.start([9])
    hybrid.propose(8)
    hybrid.commit([1, 2])
    assert hybrid.acceptance() == {"long": pytest.approx(4 / 6)}


class Sure(Fixed):
    """Says how sure it is of each token, and knows what follows others."""

    def __init__(self, tokens: Sequence[int], probability: float, following: Sequence[int] = ()) -> None:
        super().__init__(tokens, "sure")
        self._probability = probability
        self._following = following

    def propose(self, limit: int) -> Proposal:
        return Proposal(self._tokens, "sure", [self._probability] * len(self._tokens))

    def extend(self, tokens: Sequence[int], limit: int) -> Proposal:
        return Proposal(self._following[:limit], "sure", [self._probability] * len(self._following[:limit]))


@pytest.mark.parametrize(("probability", "asked"), [(1.0, 0), (0.1, 1)])
def test_a_model_is_asked_where_the_cheap_ones_are_unsure(probability: float, asked: int) -> None:
    costly = Costly([4, 4, 4])
    hybrid = HybridDrafter([costly, Sure([5, 6], probability)], draft_cost=0.1)
    assert not hybrid.costs_a_pass and HybridDrafter([costly]).costs_a_pass
    hybrid.start([9])
    assert hybrid.propose(8).source == ("costly" if asked else "sure")
    assert costly.asked == asked
    hybrid.commit([5, 6])
    assert costly.seen == [5, 6], "every member follows the text"


def test_a_model_that_costs_too_much_is_not_asked() -> None:
    costly = Costly([4, 4, 4])
    hybrid = HybridDrafter([Fixed([]), costly], draft_cost=0.6)
    hybrid.start([9])
    assert not hybrid.propose(8).tokens and costly.asked == 0


def test_a_useless_model_is_asked_less_and_less_and_then_again() -> None:
    costly = Costly([4, 4, 4])
    hybrid = HybridDrafter([Fixed([]), costly], draft_cost=0.2)
    hybrid.start([9])
    asked = []
    for _ in range(200):
        before = costly.asked
        hybrid.propose(8)
        asked.append(costly.asked - before)
        hybrid.commit([1])
    assert all(asked[:3]) and 0 < sum(asked[100:]) < 25


@pytest.mark.parametrize(("right", "prompt"), [(0.0, 2.0), (0.1, 20.0), (0.6, 20.0)])
def test_a_model_costs_no_more_than_its_budget_and_what_it_brings(right: float, prompt: float) -> None:
    """A draft token takes 0.3 passes, and reading a prompt several, once in each of ten texts."""
    print("seed 1")
    rng, now = random.Random(1), 0.0

    class Reading(Costly):
        def start(self, prompt_ids: Sequence[int]) -> None:
            self.read = False

        def propose(self, limit: int) -> Proposal:
            nonlocal now, spent
            seconds = 0.3 + prompt * (not self.read)
            now, spent, self.read = now + seconds, spent + seconds, True
            return super().propose(1)

    spent = won = 0.0
    hybrid, cycles = HybridDrafter([Fixed([]), Reading([4])], clock=lambda: now), 0
    for _ in range(10):
        hybrid.start([9])
        for _ in range(150):
            guess = hybrid.propose(8).tokens
            now += 1.0
            accepted = bool(guess) and rng.random() < right
            won, cycles = won + accepted, cycles + 1
            hybrid.commit([4, 5] if accepted else [5])
    # The first prompt is read on trust, and one more token or prompt may be under way when the budget is spent.
    assert spent - won <= BUDGET + LOSS_PER_PASS * cycles + 2 * prompt + 1
    if right > 0.5:
        assert won > 0.5 * right * cycles, "one that pays is asked"


def test_a_guess_of_the_model_is_gone_on_with_by_look_up() -> None:
    costly = Costly([4, 4])
    hybrid = HybridDrafter([Sure([], 0.9, [7, 8, 9]), costly], draft_cost=0.0)
    hybrid.start([9])
    assert hybrid.propose(4) == Proposal((4, 4, 7, 8), "costly+sure")
    hybrid.commit([4, 4, 7, 1])
    # Asked about four tokens, right in the two that it guessed; what was added is not the model's.
    assert hybrid.acceptance()["costly"] == pytest.approx((2 + 2) / (4 + 2))


def test_the_cost_of_a_draft_token_is_measured() -> None:
    now = 0.0

    class Slow(Costly):
        def propose(self, limit: int) -> Proposal:
            nonlocal now
            now += 30.0 if self.asked == 0 else 1.5  # the first one reads the prompt
            return super().propose(limit)

    hybrid = HybridDrafter([Slow([4, 4, 4])], clock=lambda: now)
    hybrid.start([9])
    for _ in range(3):
        hybrid.propose(8)
        now += 5.0
        hybrid.commit([4, 4, 4])
    assert hybrid.draft_cost == pytest.approx(0.5 / 5.0, rel=0.05)


def test_nobody_has_a_guess() -> None:
    hybrid = HybridDrafter([Fixed([]), Costly([])])
    hybrid.start([9])
    assert not hybrid.propose(4).tokens


@pytest.mark.parametrize("method", ["start", "propose", "commit"])
def test_a_failing_member_leaves_the_others_working(method: str) -> None:
    hybrid = HybridDrafter([Failing([1, 2], method), Fixed([3], "sound")])
    with pytest.warns(RuntimeWarning, match="'failing' is switched off"):
        hybrid.start([9])
        hybrid.propose(4)
        hybrid.commit([8])
    assert hybrid.propose(4).source == "sound"
    hybrid.start([9])
    assert set(hybrid.acceptance()) == {"failing", "sound"}, "a new generation is a new chance"


def test_cheap_drafters_do_without_mlx() -> None:
    rooms = {"decoding": ("drafter",), "drafters": ("lookup", "history", "hybrid")}
    modules = [f"spectool.runtime.{room}.{name}" for room, names in rooms.items() for name in names]
    modules += ["spectool.runtime.loading", "spectool.commands.display"]
    code = f"import sys, {', '.join(modules)}; sys.exit('mlx' in sys.modules or 'mlx.core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
