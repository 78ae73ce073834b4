"""Words and runs of words: literal cases, and the fast paths against one pattern."""

import random
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spectool.corpora import open_corpus
from spectool.lab.dictspec import WordNgrams
from spectool.lab.words import word_runs
from spectool.tests.build.counting_twin import windows_of

# Everything that the rules speak of, in a small alphabet, so that hard combinations are frequent.
TEXTS = st.text(st.sampled_from("аъꙋ z9_ '’ʼ-‐‑\u0301\u0300 .,«»\t\n\u00a0\U0001d165²")) | st.text()


def words(text: str) -> list[str]:
    return [word for run in word_runs(text) for word in run]


def slow_words(text: str) -> list[str]:
    """The rules read aloud, one character after the other."""
    found: list[str] = []
    word = ""
    for position, char in enumerate(text):
        following = text[position + 1 : position + 2]
        inside = word != "" and is_letter(following)
        joins = inside and char in "'’ʼ-‐‑"
        if is_letter(char) or joins or (word and unicodedata.category(char).startswith("M")):
            word += char
        elif word:
            found.append(word)
            word = ""
    return [*found, word] if word else found


def is_letter(char: str) -> bool:
    return char.isalnum() and char != "ʼ"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("п’ять п'ять пʼять", ["п’ять", "п'ять", "пʼять"]),
        ("Мій комп'ютер.", ["Мій", "комп'ютер"]),
        ("будь-який biało-czerwony", ["будь-який", "biało-czerwony"]),
        ("будь‑який будь‐який", ["будь‑який", "будь‐який"]),
        ("Kennedy'ego", ["Kennedy'ego"]),
        ("'слово' ’слово’ ʼсловоʼ «слово»", ["слово"] * 4),
        ("за\u0301мок і замо\u0301к.", ["за\u0301мок", "і", "замо\u0301к"]),
        ("3-го 1990-х 3,14", ["3-го", "1990-х", "3", "14"]),
        ("snake_case _x_", ["snake", "case", "x"]),
        ("так -- ні, а--б -в- г'", ["так", "ні", "а", "б", "в", "г"]),
        ("Qırımtatar tili — къырымтатар тили", ["Qırımtatar", "tili", "къырымтатар", "тили"]),
        ("l'uomo", ["l'uomo"]),
        ("", []),
        (" \t\n", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ой, у лузі червона калина", [["Ой"], ["у", "лузі", "червона", "калина"]]),
        ("два  пробіли", [["два"], ["пробіли"]]),
        ("рядок\nрядок таб\tтаб", [["рядок"], ["рядок", "таб"], ["таб"]]),
        ("він («так») пішов", [["він"], ["так"], ["пішов"]]),
        ("а — б", [["а"], ["б"]]),
        ("кінець. Початок", [["кінець"], ["Початок"]]),
        (" край ", [["край"]]),
        ("пʼять слів, ʼось", [["пʼять", "слів"], ["ось"]]),
    ],
)
def test_runs_stop_at_everything_but_one_space(text: str, expected: list[list[str]]) -> None:
    assert list(word_runs(text)) == expected


@given(TEXTS)
def test_words_follow_the_rules_character_by_character(text: str) -> None:
    assert words(text) == slow_words(text)


@given(TEXTS)
def test_runs_are_maximal(text: str) -> None:
    end = None
    for run in word_runs(text):
        start = text.index(" ".join(run), end or 0)
        assert end is None or text[end:start] != " "
        end = start + len(" ".join(run))


# The most frequent word n-grams, against a sorted twin that counts windows of words.


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
    texts = list(open_corpus("sample:pl"))
    assert WordNgrams(texts).most_frequent(size) == expected(texts, size, 3)
