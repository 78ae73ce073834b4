"""Text in pieces, counted in parts: against a `Counter` over all of it."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectool.build.corpus_reading import quiet
from spectool.build.packs import pieces
from spectool.build.packs.pieces import PieceCounts, add_pieces, count_pieces, split, without_rare
from spectool.build.packs.stage import Candidates
from spectool.corpora import open_corpus
from spectool.tests.build.counting_twin import windows_of

SAMPLE = list(open_corpus("sample:pl"))


def as_counter(found: PieceCounts) -> Counter[tuple[str, ...]]:
    counted: Counter[tuple[str, ...]] = Counter()
    for order, level in enumerate(found.counts.levels, 1):
        spelled = found.counts.spelled(order, range(len(level.count)))  # type: ignore[arg-type]
        for row, count in zip(spelled.tolist(), level.count.tolist(), strict=True):
            counted[tuple(found.pieces[symbol - 1] for symbol in row)] = count
    return counted


def counted_slowly(texts: Sequence[str], orders: int) -> Counter[tuple[str, ...]]:
    runs = [split(text) for text in texts]
    return sum((windows_of(runs, order) for order in range(1, orders + 1)), Counter())


@given(st.text())
def test_the_pieces_are_the_text(text: str) -> None:
    assert "".join(split(text)) == text and "" not in split(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ala ma 2 koty.\n\nI psa", ["Ala", " ma", " 2", " koty", ".\n\n", "I", " psa"]),
        ("об'єкт — це", ["об'єкт", " —", " це"]),
        ("a   b\t c \n\n d", ["a", "  ", " b", "\t", " c", " \n\n", " d"]),
        ("снова́ так", ["снова́", " так"]),
    ],
)
def test_what_a_piece_is(text: str, expected: list[str]) -> None:
    assert split(text) == expected


def test_counts_are_exact_in_one_part() -> None:
    expected = Counter({ngram: n for ngram, n in counted_slowly(SAMPLE, 3).items() if n >= 2 or len(ngram) <= 2})
    assert as_counter(count_pieces(SAMPLE, 3, quiet)) == expected


def test_parts_add_up_but_for_what_is_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_PART", 1000)
    found, exact = as_counter(count_pieces(SAMPLE * 3, 3, quiet)), counted_slowly(SAMPLE * 3, 3)
    assert found and all(0 < count <= exact[ngram] for ngram, count in found.items())
    often = [ngram for ngram in exact if exact[ngram] >= 60]
    assert often and all(found[ngram] >= 0.8 * exact[ngram] for ngram in often)


def test_two_counts_add_up() -> None:
    halves = [count_pieces(SAMPLE[::2] * 2, 3, quiet), count_pieces(SAMPLE[1::2] * 2, 3, quiet)]
    assert as_counter(add_pieces(halves)) == counted_slowly(SAMPLE * 2, 3)


def test_memory_is_bounded_by_leaving_out_what_is_rarest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MOST_ROWS", 200)
    found = count_pieces(SAMPLE, 3, quiet)
    assert all(0 < len(level.count) <= 200 for level in found.counts.levels)
    exact = counted_slowly(SAMPLE, 3)
    assert all(exact[ngram] == count for ngram, count in as_counter(found).items())


def test_names_that_are_rare_are_in_no_ngram() -> None:
    text = "pan Kowalski mieszka w Łodzi przy 12 lipach. " * 5 + "pan Nowak mieszka w Łodzi. " * 20
    found = as_counter(without_rare(count_pieces([text], 3, quiet), 3, 10))
    spelled = {piece for ngram in found for piece in ngram}
    assert {" Nowak", " Łodzi", " mieszka", " przy"} <= spelled
    assert not {" Kowalski", " 12"} & spelled


def test_there_is_room_for_some_of_those_that_save_equally() -> None:
    found = Candidates(count_pieces([f"{first}{second}" for first in "abcde" for second in "xyz"] * 3, 3, quiet)).best(
        7
    )
    assert [*found.pieces] == ["ax", "ay", "az", "bx", "by", "bz", "cx"]
