"""Tokens as a string, one code point per id: strings are hashed and sliced several times faster than tuples."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

Found = TypeVar("Found")
TokenString = str


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
