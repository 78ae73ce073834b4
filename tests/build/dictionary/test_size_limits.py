"""How many rows fit into a size: the room is used, and what fits is never refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectool.build.corpus_reading import quiet
from spectool.build.dictionary.size_limits import largest_within
from spectool.build.packs.pieces import count_pieces
from spectool.build.packs.stage import Candidates, _arrays
from spectool.corpora import open_corpus


@given(st.integers(2_000, 1_000_000), st.floats(0.5, 8), st.floats(0.8, 1), st.floats(0, 2), st.floats(0, 0.9))
def test_the_room_is_used(limit: int, first: float, power: float, with_them: float, fixed: float) -> None:
    """Rows bring others with them, and the more there are, the less each takes."""

    def make(most: float) -> tuple[int, tuple[int, bool]]:
        size = int(fixed * limit + first * int(most * (1 + with_them)) ** power)
        trials.append(size)
        return size, (size, most >= 300_000)

    trials: list[int] = []
    found = largest_within(limit, limit / 1.5, 300_000, make)
    assert found is not None and found[0] <= limit
    assert found[1] or found[0] > 0.95 * limit
    assert len(trials) <= 8


@pytest.mark.parametrize("limit", [1_000, 20_000])
def test_packs_of_a_text_fill_each_size(limit: int) -> None:
    counted = count_pieces(open_corpus("sample:uk"), 4, quiet)
    candidates = Candidates(counted)
    found = largest_within(limit, limit / 1.5, len(candidates), lambda most: _arrays(candidates.best(int(most))))
    assert found is not None and 0.9 * limit < sum(each.nbytes for each in found[0].values()) <= limit
