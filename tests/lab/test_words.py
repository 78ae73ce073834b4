"""Words and runs of words: literal cases, and the fast paths against one pattern."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectool.lab.words import word_runs

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
def test_runs_are_pieces_of_the_text(text: str) -> None:
    position = 0
    for run in word_runs(text):
        position = text.index(" ".join(run), position) + len(" ".join(run))


@given(TEXTS)
def test_runs_are_maximal(text: str) -> None:
    end = None
    for run in word_runs(text):
        start = text.index(" ".join(run), end or 0)
        assert end is None or text[end:start] != " "
        end = start + len(" ".join(run))
