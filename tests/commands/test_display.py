"""Coloured cycles: every committed character once, no broken ones, in the right colour."""

import os
import re
import sys

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.tokenizer_utils import TokenizerWrapper
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from spectool.commands.shared.display import IN_COLOUR, IN_MARKS, Display, Styles, styles_of_output
from spectool.runtime.drafters.drafter import Cycle
from spectool.tokenization.token_bytes import byte_symbols


def one_byte_each() -> TokenizerWrapper:
    backend = Tokenizer(models.BPE(byte_symbols(), []))
    backend.decoder = decoders.ByteLevel()
    return TokenizerWrapper(PreTrainedTokenizerFast(tokenizer_object=backend))


BYTES = one_byte_each()


def cycles_of(data: bytes, cuts: list[int], wrong: list[int]) -> list[Cycle]:
    """Split ``data`` into cycles of the given lengths, all but the last token of each drafted."""
    cycles, at = [], 0
    for cut in [*cuts, len(data)]:
        part = tuple(data[at : at + cut])
        if not part:
            break
        cycles.append(Cycle((*part[:-1], *wrong), "test", len(part) - 1, part))
        at += len(part)
    return cycles


def shown(cycles: list[Cycle], tokenizer: TokenizerWrapper = BYTES) -> str:
    display = Display(tokenizer, IN_COLOUR)
    return "".join(map(display.render, cycles)) + display.finish()


@pytest.mark.parametrize(
    ("cycle", "marked"),
    [
        (Cycle(tuple(b"abXY"), "test", 2, tuple(b"abc")), "[a][b][-XY-]c"),
        (Cycle(tuple(b"ab"), "test", 2, tuple(b"abc")), "[a][b]c"),
        (Cycle((), "", 0, tuple(b"c")), "c"),
        (Cycle(tuple(b"abcd"), "test", 2, tuple(b"ab")), "[a][b]"),  # a stop token inside a draft
    ],
)
def test_each_fate_has_its_mark_and_its_colour(cycle: Cycle, marked: str) -> None:
    assert Display(BYTES, styles=IN_MARKS).render(cycle) == marked
    display = Display(BYTES, IN_COLOUR)
    coloured = display.render(cycle)
    assert click.unstyle(coloured) == "".join(re.findall(r"\w", marked))
    assert (click.style("XY", fg="red", strikethrough=True) in coloured) is ("-" in marked)
    assert click.unstyle(display.legend).split() == ["accepted", "rejected", "undrafted"]


@pytest.mark.parametrize(
    ("environment", "styles"),
    [({}, IN_COLOUR), ({"NO_COLOR": ""}, IN_COLOUR), ({"NO_COLOR": "1"}, IN_MARKS), ({"TERM": "dumb"}, IN_MARKS)],
)
def test_a_terminal_gets_colours_unless_they_are_not_wanted(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], styles: Styles
) -> None:
    leader, follower = os.openpty()
    for name, value in {"TERM": "xterm", "NO_COLOR": "", **environment}.items():
        monkeypatch.setenv(name, value)
    with os.fdopen(follower, "w", encoding="utf-8") as terminal, os.fdopen(leader, "rb"):
        monkeypatch.setattr(sys, "stdout", terminal)
        assert styles_of_output() is styles
    monkeypatch.undo()


def test_bytes_that_are_no_text_do_not_hold_the_rest_back() -> None:
    data = bytes([0xFF] * 6) + b"koniec"
    assert click.unstyle(shown(cycles_of(data, [1] * 20, []))) == "\ufffd" * 6 + "koniec"


@settings(max_examples=25)
@given(
    st.text(max_size=30),
    st.lists(st.integers(1, 6), max_size=20),
    st.lists(st.sampled_from(list(b"Xz\xc4\x84\xf0")), max_size=3),
)
def test_committed_text_is_shown_once_and_whole(text: str, cuts: list[int], wrong: list[int]) -> None:
    text = text.replace("\ufffd", "").replace("\x1b", "")
    plain = click.unstyle(shown(cycles_of(text.encode(), cuts, [])))
    assert plain == text
    painted = shown(cycles_of(text.encode(), cuts, wrong))
    assert "\ufffd" not in painted
    kept = re.sub(r"\x1b\[31m\x1b\[9m.*?\x1b\[0m", "", painted, flags=re.DOTALL)
    assert click.unstyle(kept) == text
