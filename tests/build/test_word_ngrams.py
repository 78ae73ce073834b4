"""Word n-gram counts against `collections.Counter`."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectool.build import WordNgrams, count_word_ngrams

Runs = list[list[str]]
runs_of_words = st.lists(st.lists(st.sampled_from(["a", "b", "c", "ż", "п'ять"]), max_size=8), max_size=12)


def slow_counts(runs: Runs, order: int) -> Counter[str]:
    """The twin: every window of every run."""
    windows = (run[at : at + order] for run in runs for at in range(len(run) - order + 1))
    return Counter(" ".join(window) for window in windows)


def counted(ngrams: WordNgrams, order: int) -> dict[str, int]:
    counts = ngrams.orders[order - 1].counts.tolist()
    texts = [ngrams.text(order, index) for index in range(len(counts))]
    assert len(set(texts)) == len(texts)
    return dict(zip(texts, counts, strict=True))


@given(runs_of_words, st.integers(1, 4))
def test_counts_are_those_of_a_counter(runs: Runs, max_order: int) -> None:
    ngrams = count_word_ngrams(runs, max_order)
    assert len(ngrams.orders) == max_order
    assert ngrams.total_words == sum(map(len, runs))
    for order in range(1, max_order + 1):
        assert ngrams.orders[order - 1].order == order
        assert counted(ngrams, order) == slow_counts(runs, order)


@given(runs_of_words, st.integers(0, 30), st.integers(1, 3), st.integers(1, 4), st.randoms())
def test_most_frequent_is_a_sorted_counter(
    runs: Runs, size: int, max_order: int, min_count: int, rng: random.Random
) -> None:
    everything = [
        (-count, order, text) for order in range(1, max_order + 1) for text, count in slow_counts(runs, order).items()
    ]
    expected = sorted(item for item in everything if -item[0] >= min_count)[:size]
    for attempt in range(2):
        texts, counts = count_word_ngrams(runs).most_frequent(size, max_order, min_count)
        assert texts == [text for _, _, text in expected], f"attempt {attempt}: the corpus in another order"
        assert counts.tolist() == [-count for count, _, _ in expected]
        rng.shuffle(runs)


def test_by_hand() -> None:
    ngrams = count_word_ngrams([["u", "nas", "w", "domu"], ["u", "nas"], [], ["w"]])
    assert counted(ngrams, 1) == {"u": 2, "nas": 2, "w": 2, "domu": 1}
    assert counted(ngrams, 2) == {"u nas": 2, "nas w": 1, "w domu": 1}
    assert counted(ngrams, 3) == {"u nas w": 1, "nas w domu": 1}
    texts, counts = ngrams.most_frequent(5)
    assert texts == ["nas", "u", "w", "u nas", "domu"]
    assert counts.tolist() == [2, 2, 2, 2, 1]


@pytest.mark.parametrize("runs", [[], [[]], [["a"]], [["a"], ["a"]]])
def test_almost_nothing(runs: Runs) -> None:
    ngrams = count_word_ngrams(runs)
    for order in (1, 2, 3):
        assert counted(ngrams, order) == slow_counts(runs, order)
    assert ngrams.most_frequent(0)[0] == []


def test_many_words_do_not_overflow() -> None:
    """Keys of n-grams grow as vocabulary times n-grams: beyond 32 bits here."""
    rng = random.Random(3)
    words = [f"w{number}" for number in range(70_000)]
    runs = [rng.choices(words, k=200) for _ in range(500)] + [words]
    ngrams = count_word_ngrams(runs)
    for order in (2, 3):
        assert counted(ngrams, order) == slow_counts(runs, order)
