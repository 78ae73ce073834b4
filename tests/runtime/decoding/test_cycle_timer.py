"""What belongs to the drafter, to the target and to the caller, on a clock that is set by hand."""

import pytest

from spectool.runtime.decoding import cycle_timer
from spectool.runtime.decoding.cycle_timer import CycleTimer


def test_every_second_belongs_to_one_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    now, found, timer = 0.0, [], CycleTimer()
    monkeypatch.setattr(cycle_timer, "perf_counter", lambda: now)
    monkeypatch.setattr(cycle_timer, "process_time", lambda: now / 2)
    for begins in (False, True, True, False):
        timer.begin()
        now += 1
        timer.pass_begins()
        now += 10
        timer.pass_ends(begins)
        now += 2
        timer.drafter_ends()
        timer.end()
        found.append((timer.draft_seconds, timer.pass_seconds, timer.pass_is_typical, timer.caller_seconds))
        assert timer.processor_seconds == timer.pass_seconds / 2
        now += 100
    # A pass under way takes also what goes on meanwhile: committing, the caller, and proposing nothing.
    assert found == [(3, 10, True, None), (3, 10, False, 100), (3, 113, True, None), (3, 113, False, None)]
