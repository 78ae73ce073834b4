"""Sure borders: a text that is cut at one is encoded as its two parts."""

import random
from collections.abc import Callable

import pytest
from tokenizers import Tokenizer as Backend

from spectool.tests.tokenization.incremental.oracle import Reference, counted
from spectool.tests.tokenization.incremental.test_joining import draw
from spectool.tokenization.incremental.borders import Borders
from spectool.tokenization.roles import Roles
from spectool.tokenization.running_text import RunningText
from spectool.tokenization.tokenizer import Tokenizer


def borders(tokenizer: Tokenizer) -> Borders:
    return Borders(tokenizer, RunningText(tokenizer))


@pytest.mark.parametrize(("name", "count"), counted(60, 600))
def test_a_text_cut_at_sure_borders_is_its_parts(
    name: str, count: int, real: Callable[[str], Tokenizer], lines: list[str], rng: random.Random
) -> None:
    tokenizer = real(name)
    found, oracle, cuts, places = borders(tokenizer), Reference(tokenizer), 0, 0
    for _ in range(count):
        text = draw(rng, lines, list(RunningText(tokenizer).added.values()))
        whole = oracle.encode(text)
        if oracle.bytes_of(whole) != text.encode():
            continue
        for at in range(1, len(text)):
            places += 1
            if found.are_sure(text[at - 1], text[at]):
                cuts += 1
                assert oracle.encode(text[:at]) + oracle.encode(text[at:]) == whole, (text, at)
    print(f"{name}: {cuts:,} of {places:,} places are sure borders")
    assert cuts > places / 20


@pytest.mark.parametrize(
    ("before", "after", "sure"),
    [
        ("t", " ", True),
        ("t", ",", True),
        ("1", " ", True),
        ("k", "o", False),  # one word
        ("l", "o", False),  # "'llo" is split there
        ("'", "t", False),
        ("1", "2", False),  # digits go together
        (" ", "k", False),
        (" ", " ", False),  # the last space goes with the word
        ("\n", "k", False),  # a space before the line end is split off
        ("<", "t", False),  # an added token
        ("k", "<", True),
    ],
)
def test_borders_of_a_pattern(before: str, after: str, sure: bool, byte_level: Backend) -> None:
    assert borders(Tokenizer("made", byte_level, Roles())).are_sure(before, after) is sure


@pytest.mark.parametrize(("before", "after", "sure"), [("t", " ", True), ("t", "k", True), ("k", "o", False)])
def test_borders_without_a_pattern(before: str, after: str, sure: bool, sentence_piece: Backend) -> None:
    """Nothing is split, so what counts is whether a token has both."""
    assert borders(Tokenizer("made", sentence_piece, Roles())).are_sure(before, after) is sure
