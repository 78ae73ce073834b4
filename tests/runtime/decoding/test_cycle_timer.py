"""What belongs to the drafter and what to the target, on a clock that is set by hand."""

import pytest

from spectool.runtime.decoding import cycle_timer
from spectool.runtime.decoding.cycle_timer import CycleTimer


def test_seconds_belong_to_the_drafter_or_to_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    now, found, timer = 0.0, [], CycleTimer()
    monkeypatch.setattr(cycle_timer, "perf_counter", lambda: now)
    for begins in (False, True, True, False):
        timer.begin()
        now += 1
        timer.pass_begins()
        now += 10
        timer.pass_ends(begins)
        found.append((timer.draft_seconds, timer.pass_seconds, timer.pass_is_typical, timer.was_begun))
        now += 100
    # A pass under way takes also what goes on meanwhile: committing, the caller, and proposing nothing.
    assert found == [(1, 10, True, False), (1, 10, False, False), (1, 111, True, True), (1, 111, False, True)]
