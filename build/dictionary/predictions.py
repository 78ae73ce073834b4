"""A dictionary in memory: what follows each context, by its tokens as a string."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from spectool.artifacts.dictionary import Entry

Found = TypeVar("Found")
TokenString = str
"""Tokens as a string, one code point per id: strings are hashed and sliced several times faster than tuples."""


class Prediction(NamedTuple):
    """What follows a context."""

    token: int  # proposed
    probability: float  # of this token, 0..1
    occurrences: float  # of the context in the text


PredictionTable = dict[TokenString, Prediction]
"""Context -> what follows it."""


def as_text(tokens: Iterable[int]) -> TokenString:
    """Tokens as a string."""
    return "".join(map(chr, tokens))


def as_tokens(text: TokenString) -> tuple[int, ...]:
    """Tokens of a string from `as_text`."""
    return tuple(map(ord, text))


def longest_suffix(context: TokenString, known: Mapping[TokenString, Found]) -> Found | None:
    """What is known of the longest known proper suffix of a context."""
    suffixes = (context[start:] for start in range(1, len(context)))
    return next((known[suffix] for suffix in suffixes if suffix in known), None)


def entries_of(table: PredictionTable) -> list[Entry]:
    """The entries of a dictionary that predicts the same."""
    return [
        Entry(as_tokens(context), p.token, p.probability, max(1, round(p.occurrences))) for context, p in table.items()
    ]
