"""The suffix automaton against a search through the whole sequence."""

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectool.runtime.drafters.history import History, Repeat


def interrupted(*arguments: object) -> int:
    raise KeyboardInterrupt


def searched(tokens: Sequence[int]) -> Repeat:
    """The slow twin: every length, every place, from the back."""
    for length in range(len(tokens) - 1, 0, -1):
        for start in range(len(tokens) - length - 1, -1, -1):
            if tokens[start : start + length] == tokens[-length:]:
                return Repeat(start + length, length)
    return Repeat(0, 0)


@given(st.lists(st.integers(0, 3), max_size=30))
def test_equals_the_search_after_every_token(tokens: list[int]) -> None:
    history = History()
    assert history.repeat == Repeat(0, 0)
    for end, token in enumerate(tokens, 1):
        history.append(token)
        assert history.repeat == searched(tokens[:end])
    assert history.tokens == tokens


@given(st.lists(st.integers(0, 3), max_size=20), st.lists(st.integers(0, 3), max_size=6))
def test_a_look_ahead_equals_the_search_in_what_was_said(tokens: list[int], ahead: list[int]) -> None:
    history = History()
    for token in tokens:
        history.append(token)
    both = tokens + ahead
    expected = history.repeat if not ahead else Repeat(0, 0)
    for length in range(1, len(tokens) + 1 if ahead else 0):
        for start in range(len(tokens) - length + 1):
            if tokens[start : start + length] == both[-length:]:
                expected = Repeat(start + length, length)
    assert history.repeat_after(ahead) == expected
    assert history.tokens == tokens


def test_one_token_over_and_over_stays_fast() -> None:
    history = History()
    for _ in range(20_000):  # quadratic work would take minutes
        history.append(7)
    assert history.repeat == Repeat(19_999, 19_999)


@given(st.lists(st.lists(st.integers(0, 3), max_size=20), max_size=6))
def test_it_becomes_another_sequence_as_if_it_had_read_nothing_else(texts: list[list[int]]) -> None:
    history = History()
    for tokens in texts:
        with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):  # Ctrl-C in the middle of a token
            patch.setattr(History, "_add", interrupted)
            history.become([*tokens[:3], 7])
        history.become(tokens)
        fresh = History()
        for token in tokens:
            fresh.append(token)
        for name in ("tokens", "repeat", "_next", "_link", "_length", "_end", "_last"):
            assert getattr(history, name) == getattr(fresh, name), name


def test_the_next_turn_reads_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    history, added = History(), list[int]()
    turn = [token % 91 for token in range(20_000)]
    history.become(turn)
    append = History.append
    monkeypatch.setattr(History, "append", lambda self, token: (added.append(token), append(self, token)))
    history.become([*turn[:-700], *range(50)])  # an answer without its reasoning, and a question
    assert len(added) == 50
