"""Pre-tokenizers asked through representatives: the classes and the table keep their word on real tokenizers."""

import random
import sys
import unicodedata
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from spectool.artifacts import Tokenizer
from spectool.artifacts.canonical.pretokens import (
    JOIN,
    LOOK,
    SPLIT,
    START,
    PreTokens,
    boundary_table,
    coarse,
    is_space,
    never_splits,
    representative,
    stand_in_for,
    stand_ins,
)
from spectool.artifacts.tokenizer.added_tokens import added_in_text

QUICK = "nanochat-pl-ours6-nfkc"
SPLITTING = (
    "claude-legacy",
    "gpt2",
    "gpt4o-o200k",
    "llama-3.2",
    "mistral-nemo",
    "nanochat-pl-ours6-nfkc",
    "qwen2.5",
)
RUNS = ("Ж", "ж", "s", "re", "ll", "'", "'s", "\u02bc", "א", "\u0301", "0", "²", " ", "\t", "\u00a0", "\n", "\r", ".")
RUNS += ("/", "€", "ſ", "ǅ", "_", "\x1c", "\x00", "\u200b", "\U0001f600", "\u0378", "Ⅷ", "ʰ", "\x85", "\u2028")


def run_text(rng: random.Random) -> str:
    """Draw a text of runs, which are what pre-tokenizers count and look past."""
    return "".join(rng.choice(RUNS) * rng.choice((1, 1, 1, 2, 3, 5)) for _ in range(rng.randrange(1, 8)))


def check_table(tokenizer: Tokenizer, engine_table: list[list[list[int]]], rng: random.Random, count: int) -> int:
    """Hold what the table says of real characters against the pre-tokenizer; return the boundaries it decided."""
    pre_tokens, decided = PreTokens(tokenizer), 0
    for _ in range(count):
        text = run_text(rng)
        starts = set(pre_tokens.ask(text))
        assert starts == set(pre_tokens.starts(stand_ins(text))), repr(text)
        classes = [START, *(coarse(char) for char in stand_ins(text))]
        for at in range(1, len(text)):
            kind = engine_table[classes[at - 1]][classes[at]][classes[at + 1]]
            if kind == LOOK:
                continue
            decided += 1
            assert (at in starts) == (kind == SPLIT), (text, at)
            # Neither side's splits depend on the other side.
            assert {i for i in starts if i < at} == set(pre_tokens.ask(text[:at])), (text, at)
            assert {i - at for i in starts if i > at} == set(pre_tokens.ask(text[at:])) - {0}, (text, at)
    return decided


def test_the_table_keeps_its_word(
    real: Callable[[str], Tokenizer], boundaries: Callable[[str], NDArray[np.uint8]], rng: random.Random
) -> None:
    assert check_table(real(QUICK), boundaries(QUICK).tolist(), rng, 1500) > 3000


@pytest.mark.slow
@pytest.mark.parametrize("name", SPLITTING)
def test_every_table_keeps_its_word(
    name: str, real: Callable[[str], Tokenizer], boundaries: Callable[[str], NDArray[np.uint8]], rng: random.Random
) -> None:
    decided = check_table(real(name), boundaries(name).tolist(), rng, 20_000)
    print(f"{name}: {decided:,} boundaries decided by the table, no mismatch")


@pytest.mark.slow
@pytest.mark.parametrize("name", SPLITTING)
def test_every_character_is_split_like_its_representative(name: str, real: Callable[[str], Tokenizer]) -> None:
    """All code points that this Python knows; those newer than the pre-tokenizer's tables are counted."""
    pre_tokens = PreTokens(real(name))
    contexts = ("ж{}ж", " {}.", "'{} ", ".{}0")
    answers: dict[str, list[list[int]]] = {}

    def ask(char: str) -> list[list[int]]:
        return [list(pre_tokens.ask(context.format(char))) for context in contexts]

    different = checked = 0
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        if unicodedata.category(char) in ("Cs", "Co", "Cn") or 0x3400 <= code < 0xD7A4 or code >= 0x20000:
            continue
        stand_in = representative(char)
        if stand_in not in answers:
            answers[stand_in] = ask(stand_in)
        checked += 1
        if ask(char) != answers[stand_in]:
            different += 1
            print(f"U+{code:04X} {unicodedata.name(char, '?')}")
    print(f"{name}: {checked:,} characters, {different} split otherwise")
    assert different <= 5


def test_representatives() -> None:
    assert stand_ins("Kіт 42\n") == "Жжт 00\n".replace("т", "t" if representative("т") == "t" else "ж")
    assert representative("s") == "s", "contractions are spelled with it"
    assert {representative(char) for char in "éієґ"} == {"ж"}
    assert representative("\u0308") == "\u0301"
    assert coarse("\u00a0") != coarse(" ") != coarse("\n")
    assert stand_in_for("є".encode()) == "ж"
    assert stand_in_for(b"\xd1") is None


def test_only_python_takes_separators_for_spaces() -> None:
    assert "\x1c".isspace() and not is_space("\x1c")
    assert coarse(representative("\x1c")) == coarse("€")
    assert is_space("\x85") and is_space("\u2028") and is_space("\u3000")


def test_without_a_pre_tokenizer_nothing_splits(real: Callable[[str], Tokenizer]) -> None:
    tokenizer = real("bielik-11b-v2.5")
    table = boundary_table(tokenizer)
    assert never_splits(table)
    assert (table == JOIN).all()
    assert PreTokens(tokenizer).starts("ж ж") == (0,)


def test_digits_are_counted_from_where_a_number_begins(boundaries: Callable[[str], NDArray[np.uint8]]) -> None:
    """``.0`` + ``12``: the group is ``01``, so the boundary has to be looked at."""
    table, sign, number, letter = boundaries(QUICK), coarse("."), coarse("0"), coarse("ж")
    assert table[sign, number, number] == LOOK
    assert table[number, number, number] == LOOK
    assert table[number, letter, number] == SPLIT
    assert not never_splits(table)


def test_added_tokens_that_text_can_spell(real: Callable[[str], Tokenizer]) -> None:
    added = added_in_text(real("phi-3-mini"))
    assert b"</s>" in added.values()
    assert b"<|user|>" not in added.values(), "special tokens are never read out of text"


@pytest.mark.slow
def test_added_tokens_that_text_cannot_spell(real: Callable[[str], Tokenizer]) -> None:
    added = added_in_text(real("gemma-3"))
    assert b"<unused5>" in added.values()
    assert not any("▁".encode() in content for content in added.values())


def test_a_backend_that_spells_what_it_is_given(real: Callable[[str], Tokenizer]) -> None:
    for name, text in (("bielik-11b-v2.5", "kot </s>  ﬁ"), (QUICK, "<|bos|> kot")):
        tokenizer = real(name)
        ids = tokenizer.text_backend.encode(text, add_special_tokens=False).ids
        assert b"".join(tokenizer.surfaces[token] for token in ids) == text.encode()
        assert not tokenizer.specials & set(ids)
