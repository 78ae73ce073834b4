"""What passes and drafts cost, from their own times."""

import pytest

from spectool.runtime.draft_length.timings import STALE, DraftTimes, PassTimes


def test_pass_times_are_medians_between_which_it_is_interpolated() -> None:
    times = PassTimes(9)
    for tokens, seconds in ((1, 1.0), (5, 50.0), (5, 5.0), (1, 1.2), (1, 70.0)):
        times.add(tokens, seconds)
    times.update()
    assert times.curve[1:] == pytest.approx([1.2, 2.15, 3.1, 4.05, 5.0, 5.95, 6.9, 7.85, 8.8])
    assert times.known(5) and not times.known(4)
    assert times.at_least(9.0)[1:] == pytest.approx([1.2, 1.2, 1.2, 1.2, 5.0, 5.0, 5.0, 5.0, 5.0])
    # A pass over more tokens is not cheaper.
    for _ in range(2):
        times.add(3, 99.0)
    times.update()
    assert times.curve[3] == 5.0
    for _ in range(STALE + 1):
        times.add(1, 1.0)
    assert not times.known(5)
    times.add(5, 8.0)
    assert times.known(5)


def test_pass_times_of_an_earlier_generation_stand_in_proportion_for_those_not_measured_yet() -> None:
    times = PassTimes(4)
    for seconds in (1.0, 1.0):
        times.add(1, seconds)
        times.add(3, 2 * seconds)
    times.update()
    times.begin()
    assert all(times.known(size) for size in (1, 3)) and not times.known(2)
    times.update()
    assert times.curve[1:] == [1.0, 1.5, 2.0, 2.5]
    times.add(3, 6.0)  # the context has become longer
    times.update()
    assert times.curve[1:] == [3.0, 4.5, 6.0, 7.5]
    for _ in range(2):
        times.add(1, 2.0)
    times.update()
    assert times.curve[1] == 2.0 and times.measured() == {1: 2.0, 3: 2.0 * 2.0}, "what is measured counts"
    for _ in range(STALE // 2):
        times.add(1, 2.0)
    times.begin()
    for _ in range(STALE // 2):
        times.add(1, 2.0)
    assert times.known(1) and not times.known(3), "as old as it is, whatever has begun since"


def test_draft_times_are_a_line_and_what_catching_up_takes() -> None:
    times = DraftTimes()
    for tokens, seconds in ((4, 100.0), (4, 0.6), (4, 0.6), (8, 1.0), (8, 1.0), (2, 0.4)):
        times.add(tokens, 0, seconds)
    times.update()
    assert (times.fixed, times.per_token) == (pytest.approx(0.2), pytest.approx(0.1))
    times.add(4, 100, 5.6)
    assert times(4, 10) == pytest.approx(0.6 + 10 * 0.05)


def test_a_drafter_that_has_become_faster_shows_it_after_a_pause() -> None:
    times = DraftTimes()
    for tokens, seconds in ((4, 9.0), (2, 4.0), (4, 8.0), (4, 8.0)):
        times.add(tokens, 0, seconds)
    times.update()
    assert (times(2), times(4)) == (pytest.approx(4.0), pytest.approx(8.0))
    times.add(4, 100, 8.4)  # caught up, and no faster
    assert times(4) == pytest.approx(8.0) and times.per_missed == pytest.approx(0.004)
    times.add(4, 100, 0.8)  # ten times as fast, with as much to catch up
    times.update()
    assert (times(2), times(4)) == (pytest.approx(0.4), pytest.approx(0.8))


def test_one_disturbed_pass_does_not_change_what_earlier_generations_tell() -> None:
    times = PassTimes(4)
    for size in (1, 1, 2, 2):
        times.add(size, float(size))
    times.update()
    times.begin()
    times.add(1, 50.0)
    assert not times.compared
    times.add(2, 2.0)
    times.update()
    assert times.compared and times.curve[1:3] == [1.0, 2.0]


@pytest.mark.parametrize(("disturbed", "later"), [(2, (2, 2)), (4, (4, 1))], ids=["larger ones tell", "none tells"])
def test_a_size_whose_passes_were_all_disturbed_does_not_make_later_ones_fast(
    disturbed: int, later: tuple[int, int]
) -> None:
    """Another program took the machine for two passes; the next generation finds these ten times as fast."""
    times = PassTimes(4)
    for size in (1, 2, 3, 4):
        for _ in range(2):
            times.add(size, 1.0 + 0.1 * size + (9.0 if size == disturbed else 0.0))
    times.update()
    times.begin()
    for size in later:
        times.add(size, 1.0 + 0.1 * size)
    times.update()
    assert times.curve[1] == pytest.approx(1.1, rel=0.1)
