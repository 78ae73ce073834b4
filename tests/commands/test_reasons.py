"""Why a text had few drafts, by what its policy knows."""

from collections import Counter

import pytest

from spectool.commands.generate import few_drafts
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.policy.curve import PassCurve
from spectool.runtime.policy.policy import Policy
from spectool.runtime.policy.record import DraftCost
from spectool.tests.runtime.fake_drafters import Fixed


def test_a_draft_model_that_is_never_asked() -> None:
    policy, model = Policy(PassCurve({64: {1: 1.0, 2: 2.5, 17: 24.0}}, {64: 1.0})), Fixed([1], "model")
    model.costs_a_pass = True
    policy.records["model"].begin_model(DraftCost(0.2, 0.5))
    said = "since a token of it takes 0.20 plain passes; a pass over two tokens takes 2.5 plain ones here"
    assert few_drafts(DraftStatistics(passes=60, tokens=60, policy=policy), [model], 100).endswith(said)


@pytest.mark.parametrize(
    ("paused", "said"), [(True, ", and wrong ones had cost as much time as they may"), (False, "")]
)
def test_drafting_that_stopped(paused: bool, said: str) -> None:
    policy = Policy(PassCurve({64: {1: 1.0, 2: 1.5}}, {64: 1.0}))
    policy.account.left -= 9.0 * paused
    statistics = DraftStatistics(60, 60, 15, 0, 5, Counter(history=15), policy=policy)
    stopped = ", and wrong ones had cost as much time as they may" * paused
    expected = f"0 of 15 guesses were right{stopped}; a pass over two tokens takes 1.5 plain ones here"
    assert few_drafts(statistics, [], 100) == expected
    statistics.drafted_passes = 40
    assert not few_drafts(statistics, [], 100), "it went on"
    statistics.policy = None
    assert not few_drafts(statistics, [], 100), "a fixed length"
