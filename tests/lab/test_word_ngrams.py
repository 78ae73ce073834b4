"""The most frequent word n-grams, against a sorted twin that counts windows of words."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spectool.corpora import open_corpus
from spectool.lab.dictspec import WordNgrams
from spectool.lab.words import word_runs
from spectool.tests.build.counting_twin import windows_of

lines = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "ż", "п'ять", "."]), min_size=1, max_size=8).map(" ".join),
    min_size=1,
    max_size=12,
)


def expected(texts: list[str], size: int, max_order: int) -> list[tuple[str, int]]:
    """The twin: everything, sorted."""
    runs = [run for text in texts for run in word_runs(text)]
    rows = [
        (-uses, order, " ".join(ngram))
        for order in range(1, max_order + 1)
        for ngram, uses in windows_of(runs, order).items()
    ]
    return [(text, -uses) for uses, _, text in sorted(rows)[:size]]


@settings(max_examples=25, deadline=None)
@given(lines, st.integers(0, 30), st.integers(1, 3), st.randoms())
def test_most_frequent_is_a_sorted_counter(texts: list[str], size: int, max_order: int, rng: random.Random) -> None:
    for _ in range(2):  # the second time in another order, with the same result
        assert WordNgrams(texts).most_frequent(size, max_order) == expected(texts, size, max_order)
        rng.shuffle(texts)


@pytest.mark.parametrize("size", [1, 3000, 10**6])
def test_most_frequent_of_a_sample(size: int) -> None:
    texts = [document.text for document in open_corpus("sample:pl")]
    assert WordNgrams(texts).most_frequent(size) == expected(texts, size, 3)


def test_by_hand() -> None:
    counted = WordNgrams(["u nas w domu", "u nas", "w"])
    assert counted.total == 7
    assert counted.most_frequent(5) == [("nas", 2), ("u", 2), ("w", 2), ("u nas", 2), ("domu", 1)]
    assert counted.most_frequent(0) == []
