"""Stop strings are found however the text is cut into pieces."""

import doctest
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from spectool.runtime import loading
from spectool.runtime.decoding import streaming
from spectool.runtime.decoding.answer_text import AnswerText
from spectool.runtime.policy import candidate


class Tokenizer:
    detokenizer, think_start, think_end = None, "<think>", "</think>"


class Pieces(AnswerText):
    """An answer whose tokens are pieces of text."""

    def __init__(self, stops: Sequence[str], reasoning: bool | None = None) -> None:
        super().__init__(Tokenizer(), stops, reasoning=reasoning)

    def _read(self, token: Any, last: bool) -> str:
        return token or ""


def let_through(text: Pieces, pieces: Sequence[Any]) -> tuple[str, str]:
    """Return what comes out of the pieces of a text, and the stop string that was reached."""
    shown = ""
    for piece in pieces:
        shown += text.add(piece)
        if text.end:
            return shown, text.stopped_by
    return shown + text.finish(), text.stopped_by


def test_the_same_as_looking_at_the_whole_text() -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(2000):
        text = "".join(rng.choices("abc", k=rng.randint(0, 15)))
        stops = ["".join(rng.choices("abc", k=rng.randint(0, 4))) for _ in range(rng.randint(0, 3))]
        ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop and stop in text]
        cuts = sorted(rng.choices(range(len(text) + 1), k=8))
        pieces = [text[begin:end] for begin, end in pairwise([0, *cuts, len(text)])]
        shown, reached = let_through(Pieces(stops), pieces)
        assert bool(reached) == bool(ends), (text, stops)
        assert shown == (text[: min(ends)[1]] if ends else text), (text, stops)


def test_only_what_may_begin_a_stop_is_held_back() -> None:
    text: Any = Pieces(["\n\n", "Koniec"])
    assert [text.add("Zdanie.\n"), text.add("Dalej Kon"), text.finish()] == ["Zdanie.", "\nDalej ", "Kon"]


@pytest.mark.parametrize("module", [candidate, loading, streaming])
def test_examples_run(module: object) -> None:
    failed, tried = doctest.testmod(module)
    assert tried and not failed


@pytest.mark.parametrize(
    ("text", "thinks", "shown", "string"),
    [
        ("<think>one END two</think>\n\nthree END four", False, "<think>one END two</think>\n\nthree ", "END"),
        ("\n<think>\n\none</think>\n\ntwo\n\nthree", False, "\n<think>\n\none</think>\n\ntwo", "\n\n"),
        ("one END </thin</think>two END", True, "one END </thin</think>two ", "END"),
        ("one END", True, "one END", ""),
        ("<thinEND", False, "<thin", "END"),
        ("one <think> END </think>", False, "one <think> ", "END"),
        ("<think", False, "<think", ""),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_stop_string_in_reasoning_ends_nothing(text: str, thinks: bool, shown: str, string: str, size: int) -> None:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert let_through(Pieces(["END", "\n\n"], thinks), pieces) == (shown, string)
