"""Prompt lookup against a search through the whole history."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectool.runtime.drafter import Drafter
from spectool.runtime.prompt_lookup import PromptLookupDrafter


def searched(history: Sequence[int], limit: int, max_ngram: int, min_ngram: int) -> list[int]:
    """The slow twin: try every length and every place, from the back."""
    for length in range(min(max_ngram, len(history) - 1), min_ngram - 1, -1):
        for at in range(len(history) - length - 1, -1, -1):
            if history[at : at + length] == history[-length:]:
                text = list(history)
                for i in range(limit):
                    text.append(text[at + length + i])
                return text[len(history) :]
    return []


def test_continues_the_longest_and_latest_occurrence() -> None:
    drafter = PromptLookupDrafter()
    assert isinstance(drafter, Drafter)
    drafter.start([1, 2, 3, 10, 9, 2, 3, 20, 2, 3, 30, 1, 2, 3])
    assert list(drafter.propose(2).tokens) == [10, 9]
    drafter.start([2, 3, 20, 2, 3, 30, 2, 3])
    assert list(drafter.propose(1).tokens) == [30]


def test_a_period_is_copied_at_full_length() -> None:
    drafter = PromptLookupDrafter()
    drafter.start([5, 6, 7, 5, 6])
    assert list(drafter.propose(7).tokens) == [7, 5, 6, 7, 5, 6, 7]


def test_nothing_known_nothing_proposed() -> None:
    drafter = PromptLookupDrafter()
    drafter.start([])
    assert drafter.propose(5).tokens == ()
    drafter.commit([1, 2, 3, 1])
    assert drafter.propose(5).tokens == ()


def test_start_forgets() -> None:
    drafter = PromptLookupDrafter()
    drafter.start([1, 2, 3, 1, 2])
    assert drafter.propose(1).tokens
    drafter.start([1, 2])
    assert not drafter.propose(1).tokens


@pytest.mark.parametrize("lengths", [(2, 0), (1, 2)])
def test_lengths_are_checked(lengths: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="expected 1 <= min_ngram <= max_ngram"):
        PromptLookupDrafter(*lengths)


@given(
    st.lists(st.integers(0, 3), max_size=40),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=10),
    st.integers(0, 9),
    st.sampled_from([(4, 2), (3, 1), (1, 1), (6, 3)]),
)
def test_equals_the_search(prompt: list[int], cycles: list[list[int]], limit: int, lengths: tuple[int, int]) -> None:
    drafter = PromptLookupDrafter(*lengths)
    drafter.start(prompt)
    history = list(prompt)
    for tokens in cycles:
        assert list(drafter.propose(limit).tokens) == searched(history, limit, *lengths)
        drafter.commit(tokens)
        history += tokens
