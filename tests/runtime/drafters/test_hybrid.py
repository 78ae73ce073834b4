"""Which source a hybrid asks, which proposal it takes and what it learns."""

import random
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import pytest

from spectool import RuntimeUnsupported
from spectool.artifacts.pass_costs import DraftFacts
from spectool.runtime.draft_length.record import ALLOWANCE, MAX_LOSS
from spectool.runtime.drafters.drafter import Drafter, Proposal
from spectool.runtime.drafters.hybrid import HybridDrafter
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.drafters.prices import Prices, expected_accepted_length
from spectool.tests.runtime.fake_drafters import Failing, Fixed


class Clock:
    """A clock that stands still unless somebody moves it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Costly(Fixed):
    costs_a_pass = True

    def __init__(self, tokens: list[int], clock: Clock | None = None, seconds: float = 0.0) -> None:
        super().__init__(tokens, "costly")
        self._clock, self._seconds = clock, seconds  # of each token
        self.asked = 0
        self.seen: list[int] = []

    def propose(self, limit):
        self.asked += 1
        if self._clock is not None:
            self._clock.now += self._seconds * len(self._tokens[:limit])
        return super().propose(limit)

    def commit(self, tokens):
        self.seen += tokens


def test_expected_length_is_the_sum_of_the_products() -> None:
    for acceptance in (0.0, 0.3, 0.99, 1.0):
        for count in (0, 1, 5):
            total = sum(acceptance**i for i in range(1, count + 1))
            assert expected_accepted_length([acceptance] * count) == pytest.approx(total)


def test_a_cut_promises_more_than_every_other() -> None:
    print("seed 2")
    rng = random.Random(2)
    for _ in range(200):
        right = [rng.random() for _ in range(rng.randrange(6))]
        curve = [0.0, *sorted(rng.uniform(1, 2) for _ in range(8))]
        prices = Prices(curve, rng.choice([0.0, 0.1]), rng.uniform(0.5, 2))
        before, rows = rng.random(), rng.randint(1, 2)
        length, promised = prices.best_cut(right, before, rows)
        worths = []
        for each in range(len(right) + 1):
            tokens = before * expected_accepted_length(right[:each])
            worths.append(prices.worth(tokens, curve[rows + each] - curve[rows] + prices.caller * tokens))
        assert promised == pytest.approx(max(worths)) == pytest.approx(worths[length])


def test_a_fork_has_a_text_of_its_own_and_learns_with_the_others() -> None:
    hybrid = HybridDrafter([LookupDrafter(history=True)])
    hybrid.start([3])
    forks = [hybrid.fork() for _ in range(2)]
    for fork, follower in zip(forks, (5, 6), strict=True):
        assert fork is not None
        fork.start([1, 2, follower, 1, 2])
        assert list(fork.propose(1).tokens) == [follower]
    before = hybrid.acceptance()
    assert forks[0] is not None and forks[1] is not None
    forks[0].commit([9])
    assert forks[1].acceptance() == hybrid.acceptance() != before
    assert HybridDrafter([LookupDrafter(history=True), Fixed([1])]).fork() is None


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
    assert acceptance["right"] > 0.8 and acceptance["wrong"] < 0.45
    hybrid.start([9])
    assert hybrid.acceptance() == acceptance, "the next text is much like this one"
    for _ in range(300):
        hybrid.commit([1])
    assert hybrid.acceptance()["wrong"] == pytest.approx(0.9, abs=0.01), "what is not asked is forgiven in time"


def test_a_proposal_that_outlasts_the_cycle_is_not_contradicted() -> None:
    hybrid = HybridDrafter([Fixed([1, 2, 3, 4], "long")])
    hybrid.start([9])
    hybrid.propose(8)
    hybrid.commit([1, 2])
    assert hybrid.acceptance() == {"long": pytest.approx(5.6 / 6)}


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
    hybrid = HybridDrafter([costly, Sure([5, 6], probability)], clock=Clock())
    assert not hybrid.costs_a_pass and HybridDrafter([costly]).costs_a_pass
    hybrid.start([9])
    assert hybrid.propose(8).source == ("costly" if asked else "sure")
    assert costly.asked == asked
    hybrid.commit([5, 6])
    assert costly.seen == [5, 6] * asked, "a model follows the text once it is asked"


@pytest.mark.parametrize("right", [4, 5])
def test_a_look_up_is_believed_less_where_a_model_says_otherwise(right: int) -> None:
    """Both are always equally sure, and one of them is always right."""
    costly = Costly([4])
    hybrid = HybridDrafter([Sure([5], 0.6), costly], clock=Clock())
    hybrid.records[0].start_from(DraftFacts(2.0, 0.0, 0.0, 0.0, 0.0))
    hybrid.start([9])
    for _ in range(40):
        proposed = hybrid.propose(1).tokens
        hybrid.commit([right])
    assert proposed == (right,)


@pytest.mark.parametrize("prompt", [[], [9]])
def test_a_model_is_started_with_the_whole_text(prompt: list[int]) -> None:
    class Starting(Costly):
        def start(self, prompt_ids: Sequence[int]) -> None:
            self.seen = list(prompt_ids)

    model, sure = Starting([4]), Sure([5, 6], 1.0)
    hybrid = HybridDrafter([sure, model], clock=Clock())
    hybrid.start(prompt)
    text = list(prompt)
    while not model.asked:
        hybrid.propose(8)
        hybrid.commit([1, 2])  # nobody was right
        text += [1, 2]
    assert len(text) > len(prompt) and model.seen == text, "what was committed before it was asked as well"


def test_a_model_that_costs_too_much_is_not_asked() -> None:
    costly = Costly([4, 4, 4])
    hybrid = HybridDrafter([Fixed([]), costly], clock=Clock())
    hybrid.records[0].start_from(DraftFacts(None, 0.0, 0.0, 0.8, 0.0))
    hybrid.start([9])
    assert not hybrid.propose(8).tokens and costly.asked == 0


def test_a_useless_model_is_asked_less_and_less_and_then_again() -> None:
    clock = Clock()
    costly = Costly([4, 4, 4], clock, 0.2)
    hybrid = HybridDrafter([Fixed([]), costly], clock=clock)
    hybrid.start([9])
    asked = []
    for _ in range(200):
        before = costly.asked
        hybrid.propose(8)
        asked.append(costly.asked - before)
        clock.now += 1.0
        hybrid.commit([1])
    assert all(asked[:3]) and 0 < sum(asked[100:]) < 25


def test_the_first_prompt_is_read_on_trust_also_where_it_is_known_what_that_takes() -> None:
    clock = Clock()
    hybrid = HybridDrafter([Fixed([]), Costly([4], clock, 3.1)], clock=clock)
    record, left = hybrid.records[0], list[float]()
    record.start_from(DraftFacts(None, 0.0, 0.0, 0.1, 0.05))
    for _ in range(2):
        left.append(record.losses.left)
        hybrid.start([9] * 60)
        hybrid.propose(1)
        clock.now += 1.0
        hybrid.commit([5])
    assert left[0] - left[1] < 0.2
    assert left[1] - record.losses.left > 2.0, "the second prompt counts"


@pytest.mark.parametrize("measured", [False, True], ids=["fresh", "measured before"])
@pytest.mark.parametrize(("right", "prompt"), [(0.0, 2.0), (0.1, 8.0), (0.6, 8.0)])
def test_a_model_costs_no_more_than_its_budget_and_what_it_brings(right: float, prompt: float, measured: bool) -> None:
    """A draft token takes 0.3 passes, and reading a prompt of 100 tokens several, once in each of ten texts."""
    print("seed 1")
    rng, now = random.Random(1), 0.0

    class Reading(Costly):
        def start(self, prompt_ids: Sequence[int]) -> None:
            self.missed = len(prompt_ids)

        def commit(self, tokens: Sequence[int]) -> None:
            self.missed += len(tokens)

        def propose(self, limit: int) -> Proposal:
            nonlocal now, spent
            seconds = 0.3 + prompt * self.missed / 100
            now, spent, self.missed = now + seconds, spent + seconds, 0
            return super().propose(1)

    spent = won = 0.0
    hybrid, cycles = HybridDrafter([Fixed([]), Reading([4])], clock=lambda: now), 0
    if measured:
        hybrid.records[0].start_from(DraftFacts(None, 0.0, 0.0, 0.3, prompt / 100))
    for _ in range(10):
        hybrid.start([9] * 100)
        for _ in range(150):
            guess = hybrid.propose(8).tokens
            now += 1.0
            accepted = bool(guess) and rng.random() < right
            won, cycles = won + accepted, cycles + 1
            hybrid.commit([4, 5] if accepted else [5])
    # The first prompt is read on trust, and one more token or prompt may be under way when the account is empty.
    assert spent - won <= 0.5 * (ALLOWANCE + MAX_LOSS * cycles) + 2 * prompt + 1
    if right > 0.5:
        assert won > 0.5 * right * cycles, "one that pays is asked"


def test_a_guess_of_the_model_is_gone_on_with_by_look_up() -> None:
    costly = Costly([4, 4])
    hybrid = HybridDrafter([Sure([], 0.9, [7, 8, 9]), costly], clock=Clock())
    hybrid.records[0].start_from(DraftFacts(None, 0.0, 0.0, 0.0, 0.0))
    hybrid.start([9])
    assert hybrid.propose(4) == Proposal((4, 4, 7, 8), "costly+sure")
    hybrid.commit([4, 4, 7, 1])
    # Right in the two tokens that it guessed; what was added is not the model's.
    assert hybrid.acceptance()["costly"] == pytest.approx((3.6 + 2) / (4 + 2))


def test_nobody_has_a_guess() -> None:
    hybrid = HybridDrafter([Fixed([]), Costly([])])
    hybrid.start([9])
    assert not hybrid.propose(4).tokens


@pytest.mark.parametrize("method", ["start", "propose", "commit"])
def test_a_failing_member_leaves_the_others_working(method: str, caplog: pytest.LogCaptureFixture) -> None:
    hybrid = HybridDrafter([Failing([1, 2], method), Fixed([3], "sound")])
    hybrid.start([9])
    hybrid.propose(4)
    hybrid.commit([8])
    assert "'failing' is switched off" in caplog.text
    assert hybrid.propose(4).source == "sound"
    hybrid.start([9])
    assert set(hybrid.acceptance()) == {"failing", "sound"}, "a new generation is a new chance"


def test_cheap_drafters_do_without_mlx() -> None:
    modules = [f"spectool.runtime.drafters.{name}" for name in ("drafter", "lookup", "history", "hybrid")]
    modules += ["spectool.runtime.loading", "spectool.commands.shared.display"]
    code = f"import sys, {', '.join(modules)}; sys.exit('mlx' in sys.modules or 'mlx.core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_a_look_up_has_drawn_counts_as_a_guess() -> None:
    """It is shortened after it was drawn, which would change the distribution of what the target accepts."""

    class Drawing(Fixed):
        def propose(self, limit: int) -> Proposal:
            return super().propose(limit)._replace(distribution=mx.ones((len(self._tokens), 9)) / 9)

    class DrawingModel(Drawing):
        costs_a_pass = True

    for kind, drawn in ((Drawing, False), (DrawingModel, True)):
        hybrid = HybridDrafter([kind([1, 2, 3], "drawing")])
        hybrid.start([7])
        proposal = hybrid.propose(3)
        assert list(proposal.tokens) == [1, 2, 3][: len(proposal.tokens)] and proposal.tokens
        assert (proposal.distribution is not None) == drawn


@pytest.mark.parametrize("wrong", [[], "pl.dict", Fixed([1], "a"), [Fixed([1], "a"), None]])
def test_members_that_are_no_drafters_are_refused(wrong: Any) -> None:
    with pytest.raises(RuntimeUnsupported, match="drafters: expected a list of drafters"):
        HybridDrafter(wrong)
