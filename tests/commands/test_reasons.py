"""Why a text had few drafts, by what its policy knows."""

from collections import Counter

import pytest

from spectool.commands.shared.reasons import few_drafts
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.policy.curve import PassCurve
from spectool.runtime.policy.policy import Policy
from spectool.runtime.policy.record import DraftCost
from spectool.tests.runtime.fake_drafters import Fixed


@pytest.mark.parametrize(
    ("two", "token", "reading", "said"),
    [
        (2.5, 0.2, 0.0, "a pass over two tokens takes 2.5 plain ones here, and a token of the draft model 0.20"),
        (2.5, 0.0, 0.0, "a pass over two tokens takes 2.5 plain ones here"),
        (1.1, 0.1, 0.5, "it would have to read the text, as long as 50.0 plain passes"),
    ],
)
def test_a_draft_model_that_is_never_asked(two: float, token: float, reading: float, said: str) -> None:
    policy, model = Policy(PassCurve({64: {1: 1.0, 2: two, 17: 16 * (two - 1)}}, {64: 1.0})), Fixed([1], "model")
    model.costs_a_pass = True
    policy.record("model").begin_model(DraftCost(token, reading))
    found = few_drafts(DraftStatistics(passes=60, tokens=60, policy=policy), [model], 100)
    assert found.startswith(f"the draft model was never asked: {said}")


@pytest.mark.parametrize(
    ("paused", "said"),
    [
        (True, "drafting stopped: 0 of 15 guesses were right, and wrong ones had cost as much time as they may"),
        (False, "drafting was rare: 0 of 15 guesses were right, and a pass over two tokens takes 1.5 plain ones here"),
    ],
)
def test_drafting_that_stopped(paused: bool, said: str) -> None:
    policy = Policy(PassCurve({64: {1: 1.0, 2: 1.5}}, {64: 1.0}))
    policy.account.left -= 9.0 * paused
    statistics = DraftStatistics(60, 60, 15, 0, 5, Counter(history=15), policy=policy)
    assert few_drafts(statistics, [], 100) == said
    statistics.drafted_passes = 40
    assert not few_drafts(statistics, [], 100), "it went on"
    statistics.policy = None
    assert not few_drafts(statistics, [], 100), "a fixed length"
