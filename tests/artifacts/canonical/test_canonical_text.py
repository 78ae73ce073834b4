"""The slow path: Unigram, WordPiece and BPE with word-end marks, text encoded again from a few words back."""

import random
from collections.abc import Callable

import pytest

from spectool.artifacts import Tokenizer
from spectool.artifacts.canonical.by_text import CanonicalText, recent

NAMES = ("t5-small", "bert-base-uncased")
SLOW = ("herbert-base-cased", "xlm-roberta-base")


def whole(tokenizer: Tokenizer, text: str) -> list[int]:
    return CanonicalText(tokenizer).encode(text.encode())


@pytest.mark.parametrize("name", [*NAMES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_growing_text(name: str, real: Callable[[str], Tokenizer], lines: list[str], rng: random.Random) -> None:
    tokenizer = real(name)
    engine, texts = CanonicalText(tokenizer), 0
    for line in lines[:25]:
        text = " ".join(line.split())[:200]
        words = text.split(" ")
        ids: list[int] = []
        done = ""
        while words:
            count = rng.randrange(1, 4)
            fresh = (" " if done else "") + " ".join(words[:count])
            start, tail = engine.join(ids, done.encode(), fresh.encode())
            ids[start:] = tail
            done, words = done + fresh, words[count:]
        assert ids == whole(tokenizer, text), text
        texts += 1
    assert texts == 25
    assert engine.string_calls > texts


@pytest.mark.parametrize("name", NAMES)
def test_what_follows_a_boundary(name: str, real: Callable[[str], Tokenizer]) -> None:
    tokenizer = real(name)
    engine = CanonicalText(tokenizer)
    ids, holds = engine.following(whole(tokenizer, "the small house"), b"the small house", b" is old")
    assert holds
    assert whole(tokenizer, "the small house") + ids == whole(tokenizer, "the small house is old")
    _, holds = engine.following(whole(tokenizer, "the small hou"), b"the small hou", b"se is old")
    assert not holds


def test_special_tokens_are_not_read_out_of_text(real: Callable[[str], Tokenizer]) -> None:
    tokenizer = real("bert-base-uncased")
    assert tokenizer.encode("[SEP]") == [tokenizer.vocabulary["[SEP]"]]
    assert tokenizer.vocabulary["[SEP]"] not in CanonicalText(tokenizer).encode(b"[SEP]")


def test_half_a_character_is_left_out(real: Callable[[str], Tokenizer]) -> None:
    engine = CanonicalText(real("t5-small"))
    assert engine.encode("kot ż".encode()[:-1]) == engine.encode(b"kot ")
    assert engine.string_calls == 2


def test_what_is_cut_off_leaves_no_space_behind(real: Callable[[str], Tokenizer]) -> None:
    """A tokenizer that puts a space before everything it encodes, joined through text a few words back."""
    tokenizer = real("mistral-7b-v0.1")
    engine = CanonicalText(tokenizer)
    ids: list[int] = []
    text = b""
    for word in ["", "", "To", "jest.\n", "Długi", "tekst:", "", "pięć", "albo", "sześć", "słów,", "§", "&", "znaki"]:
        fresh = (" " + word if text else word).encode()
        start, tail = engine.join(ids, recent(text), fresh)
        ids[start:] = tail
        text += fresh
        assert ids == whole(tokenizer, text.decode())
