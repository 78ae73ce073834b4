"""Spellings of one tokenizer's tokens in another's ids, inside a text."""

import random
from collections.abc import Callable

import pytest

from spectool.lab.spellings import spellings
from spectool.tokenization.token_bytes import text_of
from spectool.tokenization.tokenizer import Tokenizer

PAIRS = (("bielik-11b-v2.5", "nanochat-pl-ours6-nfkc"), ("nanochat-pl-ours6-nfkc", "bielik-11b-v2.5"))


def check(source: Tokenizer, other: Tokenizer, tokens: list[int]) -> None:
    """Compare the bytes of the spellings of some tokens."""
    table = spellings(source, other)
    assert len(table) == source.size
    for token in tokens:
        raw = source.token_bytes[token]
        assert b"".join(map(other.token_bytes.__getitem__, table[token])) == text_of(raw).encode()
        assert raw or table[token] == (), "of a special token"


def test_bytes_of_every_spelling(bundled: Tokenizer, other_bundled: Tokenizer) -> None:
    check(bundled, other_bundled, list(range(bundled.size)))
    check(other_bundled, bundled, list(range(other_bundled.size)))
    check(bundled, bundled, list(range(bundled.size)))


@pytest.mark.parametrize(("source", "other"), PAIRS)
def test_bytes_of_real_spellings(source: str, other: str, real: Callable[[str], Tokenizer]) -> None:
    tokens = random.Random(1).sample(range(real(source).size), 3000)
    check(real(source), real(other), tokens)


def test_spellings_are_canonical(bundled: Tokenizer, other_bundled: Tokenizer) -> None:
    """They are what the other tokenizer writes for the text behind a word that nothing merges with."""
    for source, other in ((bundled, other_bundled), (other_bundled, bundled)):
        table = spellings(source, other)
        before = other.encode("kot")
        for token in range(0, source.size, 7):
            raw = source.token_bytes[token]
            if text_of(raw) and raw.startswith(b" ") and raw.strip():
                assert [*before, *table[token]] == other.encode("kot" + raw.decode())
