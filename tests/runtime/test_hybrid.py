"""Which source a hybrid asks, which proposal it takes and what it learns."""

import subprocess
import sys

import pytest

from spectool.runtime.drafter import Drafter
from spectool.runtime.hybrid import HybridDrafter, expected_accepted_length

from .drafters import Failing, Fixed, Oracle


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


def test_expected_length_is_the_geometric_sum() -> None:
    for acceptance in (0.0, 0.3, 0.99, 1.0):
        for count in (0, 1, 5):
            total = sum(acceptance**i for i in range(1, count + 1))
            assert expected_accepted_length(acceptance, count) == pytest.approx(total)


def test_equal_trust_the_longer_proposal_wins() -> None:
    hybrid = HybridDrafter([Fixed([1], "short"), Fixed([2, 3], "long")])
    assert isinstance(hybrid, Drafter)
    hybrid.start([9])
    assert hybrid.propose(8).source == "long"
    assert len(hybrid.propose(1).tokens) == 1


def test_trust_is_learnt_also_from_proposals_not_taken() -> None:
    hybrid = HybridDrafter([Fixed([1, 2], "right"), Fixed([7, 7, 7, 7], "wrong")])
    hybrid.start([9])
    assert hybrid.propose(4).source == "wrong"
    for _ in range(5):
        hybrid.propose(4)
        hybrid.commit([1, 2, 3])
    assert hybrid.propose(4).source == "right"
    # Beta(2, 2) and 10 right tokens; Beta(2, 2) and 5 wrong ones.
    assert hybrid.acceptance() == {"right": pytest.approx(12 / 14), "wrong": pytest.approx(2 / 9)}
    hybrid.start([9])
    assert hybrid.acceptance() == {"right": 0.5, "wrong": 0.5}


def test_a_proposal_that_outlasts_the_cycle_is_not_contradicted() -> None:
    hybrid = HybridDrafter([Fixed([1, 2, 3, 4], "long")])
    hybrid.start([9])
    hybrid.propose(8)
    hybrid.commit([1, 2])
    assert hybrid.acceptance() == {"long": pytest.approx(4 / 6)}


def test_a_model_is_asked_only_when_the_cheap_ones_have_nothing() -> None:
    costly, cheap = Costly([4, 4, 4]), Oracle([5, 6])
    hybrid = HybridDrafter([costly, cheap])
    assert not hybrid.costs_a_pass
    hybrid.start([9])
    assert hybrid.propose(1).source == "oracle"
    assert costly.asked == 0
    hybrid.commit([5, 6])
    assert hybrid.propose(2).source == "costly"
    assert costly.seen == [5, 6], "every member follows the text"
    assert HybridDrafter([costly]).costs_a_pass


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
    modules = (
        "spectool.runtime",
        *(
            f"spectool.runtime.{name}"
            for name in ("drafter", "lookup_drafter", "history", "hybrid", "display", "caches", "proposer")
        ),
    )
    code = f"import sys, {', '.join(modules)}; sys.exit('mlx' in sys.modules or 'mlx.core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
