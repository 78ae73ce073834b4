"""Spellings of one tokenizer's tokens in another's ids: by bytes, inside, after a space and at a start."""

import random
from collections.abc import Callable

import pytest

from spectool.build.alignment.spellings import spellings
from spectool.tokenization.tokenizer import Tokenizer

PAIRS = (("bielik-11b-v2.5", "nanochat-pl-ours6-nfkc"), ("nanochat-pl-ours6-nfkc", "bielik-11b-v2.5"))


def whole(raw: bytes) -> bool:
    try:
        return bool(raw.decode())
    except UnicodeDecodeError:
        return False


def check(source: Tokenizer, other: Tokenizer, tokens: list[int]) -> None:
    """Compare the bytes of both spellings of some tokens."""
    table = spellings(source, other)
    assert {len(table.inside), len(table.text_start)} == {source.size}

    def bytes_of(ids: tuple[int, ...]) -> bytes:
        return b"".join(map(other.token_bytes.__getitem__, ids))

    space = b" " * other.leading_space
    for token in tokens:
        raw = source.token_bytes[token]
        if not whole(raw):
            assert table.inside[token] == table.text_start[token] == ()
            continue
        start = raw.removeprefix(b" ") if source.leading_space else raw
        assert bytes_of(table.inside[token]) == raw
        assert bytes_of(table.text_start[token]) == space + start, raw


def test_bytes_of_every_spelling(bundled: Tokenizer, other_bundled: Tokenizer) -> None:
    check(bundled, other_bundled, list(range(bundled.size)))
    check(other_bundled, bundled, list(range(other_bundled.size)))
    check(bundled, bundled, list(range(bundled.size)))


@pytest.mark.parametrize(("source", "other"), PAIRS)
def test_bytes_of_real_spellings(source: str, other: str, real: Callable[[str], Tokenizer]) -> None:
    tokens = random.Random(1).sample(range(real(source).size), 3000)
    check(real(source), real(other), tokens)


def test_spellings_are_canonical(bundled: Tokenizer, other_bundled: Tokenizer) -> None:
    """At a text's start they are what the other tokenizer writes for the text."""
    table = spellings(bundled, other_bundled)
    for token in range(0, bundled.size, 7):
        raw = bundled.token_bytes[token].removeprefix(b" ")
        if whole(raw):
            assert list(table.text_start[token]) == other_bundled.encode(raw.decode())


def test_specials_have_no_spelling(bundled: Tokenizer, other_bundled: Tokenizer) -> None:
    table = spellings(bundled, other_bundled)
    assert bundled.specials
    assert all(table.inside[token] == table.text_start[token] == () for token in bundled.specials)


def test_a_side_without_the_lemma(bundled: Tokenizer, real: Callable[[str], Tokenizer]) -> None:
    """Unigram gets what it writes for the text alone."""
    other = real("t5-small")
    table = spellings(bundled, other)
    for token in range(0, bundled.size, 11):
        if whole(bundled.token_bytes[token]):
            assert list(table.inside[token]) == other.encode(bundled.token_bytes[token].decode())
