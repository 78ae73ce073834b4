"""What passes cost between the points that were measured, and when a drift counts."""

import logging
import random

import pytest

from spectool.runtime.policy.curve import ASSUMED, FAR_OFF, FREE, Drift, PassCurve


def test_more_rows_that_take_a_little_less_are_noise() -> None:
    curve = PassCurve({64: {1: 1.1, 2: 1.4, 4: 1.2, 8: 2.0}}, {64: 1.0})
    assert [curve.seconds(rows, 64) for rows in (0, 1, 2, 3, 4, 6, 8)] == pytest.approx([1, 1.1, 1.2, 1.2, 1.2, 1.6, 2])
    assert curve.seconds(12, 64) == pytest.approx(2.0 + 4 * 0.2), "the last slope goes on"
    assert PassCurve({64: {1: 1.3, 2: 1.2}}, {64: 1.4}).seconds(0, 64) == pytest.approx(1.2)


def test_a_size_whose_kernel_is_slower_than_that_of_more_rows_is_dear() -> None:
    """As measured with OpenBLAS, in milliseconds: a pass over 3 rows takes longer than one over 4."""
    curve = PassCurve({64: {1: 216, 2: 218, 3: 275, 4: 215, 8: 241, 17: 382}}, {64: 216})
    assert [curve.seconds(rows, 64) for rows in (1, 2, 3, 4, 8)] == [215, 215, 275, 215, 241]
    one, two, three = curve.costs(3, 64)[1:]
    assert one == three == 1.0 < two


def test_between_contexts_and_beyond_them_a_line_is_drawn() -> None:
    curve = PassCurve({64: {1: 1.0, 2: 1.0}, 1088: {1: 2.0, 2: 3.0}}, {64: 1.0, 1088: 2.0})
    assert curve.seconds(1, 0) == curve.seconds(1, 64) == 1.0
    assert curve.seconds(1, 576) == pytest.approx(1.5)
    assert curve.seconds(2, 2112) == pytest.approx(5.0)
    assert curve.costs(1, 1088) == pytest.approx([1.0, 1.5])


def test_costs_are_in_plain_passes_of_the_same_texts() -> None:
    curve = PassCurve({0: {1: 1.1, 2: 1.2, 3: 1.3, 4: 1.4, 6: 1.6}}, {0: 1.0})
    assert curve.costs(2, 0) == pytest.approx([1.1, 1.2, 1.3]), "one that could have drafted takes a little longer"
    assert curve.costs(2, 0, texts=2) == pytest.approx([1.0, 1.4 / 1.2, 1.6 / 1.2])
    assert curve.costs(1, 0, refed=1) == pytest.approx([1.2, 1.3])
    assert curve.costs(1, 0, drift=2.0) == pytest.approx([1.1, 2.4])
    assert FREE.costs(3, 5000, refed=2) == [1.0] * 4
    assert ASSUMED.costs(1, 0)[1] == pytest.approx(0.83 + 0.17 * 2)


@pytest.mark.parametrize(("slower", "noise", "acts"), [(1.0, 0.05, False), (1.1, 0.05, False), (1.5, 0.05, True)])
def test_only_what_is_far_off_counts(slower: float, noise: float, acts: bool, caplog: pytest.LogCaptureFixture) -> None:
    print("seed 1")
    rng, drift = random.Random(1), Drift()
    with caplog.at_level(logging.WARNING):
        for _ in range(200):
            for rows, times in ((1, 1.0), (4, slower)):
                disturbed = 10.0 if rng.random() < 0.01 else 1.0
                drift.observe(rows, times * disturbed * rng.lognormvariate(0, noise), 1.0, drafted=rows > 1)
    assert drift.factor == (pytest.approx(slower, rel=0.1) if acts else 1.0)
    assert len(caplog.records) == acts, "said once"
    for _ in range(200):
        drift.observe(4, 1.0, 1.0, drafted=True)
    assert drift.factor == 1.0 < FAR_OFF, "forgotten when it is over"


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (3.0, 1.0)])
def test_a_clock_that_stands_still_or_a_machine_that_is_slow_as_a_whole_does_not_drift(
    seconds: float, expected: float
) -> None:
    drift = Drift()
    for _ in range(50):
        drift.observe(1, seconds, expected, drafted=False)
        drift.observe(4, seconds, expected, drafted=True)
    assert drift.factor == 1.0


def test_where_every_pass_has_drafts_a_plain_one_is_wanted_now_and_then_at_first() -> None:
    drift, plain = Drift(), 0
    for _ in range(500):
        plain += drift.wants_plain
        drift.observe(1 if drift.wants_plain else 4, 1.0, 1.0, drafted=not drift.wants_plain)
    assert 1 <= plain <= 5


def test_what_was_seen_of_a_size_says_that_fewer_rows_are_no_dearer_and_more_in_proportion() -> None:
    drift, doubted = Drift(lambda: doubted.append(True)), list[bool]()
    costs = [1.0, 5.0, 6.0, 1.4, 8.0, 9.0, 10.0]  # by draft length; passes over 1 to 7 rows
    for _ in range(8):
        drift.observe(1, 1.0, 1.0, drafted=False)
        drift.observe(3, 6.0, 6.0, drafted=True)
    assert drift.corrected(list(costs), 1) == costs and not doubted, "a kernel that is slow for three rows"
    assert drift.hoped(costs, 1) == pytest.approx([1.0, 1.05, 6.0, 1.15, 1.2, 1.25, 1.3])
    for _ in range(4):
        drift.observe(1, 1.0, 1.0, drafted=False)
        drift.observe(5, 1.6, 8.0, drafted=True)
    assert drift.corrected(list(costs), 1) == pytest.approx([1.0, 1.4, 6.0, 1.4, 1.6, 1.75, 1.9]) and doubted
    assert drift.factor == 1.0
    for _ in range(30):
        drift.observe(5, 8.0, 8.0, drafted=True)
    assert drift.corrected(list(costs), 1) == costs, "it was not"
