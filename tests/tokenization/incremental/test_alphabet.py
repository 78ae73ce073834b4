"""Classes of characters and adversarial texts, derived from the pre-tokenizer's own patterns."""

import json
import random
import sys
import unicodedata
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from spectool import TokenizerError
from spectool.tokenization import Tokenizer
from spectool.tokenization.incremental.adversarial import adversarial_texts
from spectool.tokenization.incremental.alphabet import alphabet_of, parts_of_pattern
from spectool.tokenization.roles import Roles


def splitting(*steps: Any) -> Tokenizer:
    """A tokenizer with these pre-tokenizer steps and hardly a vocabulary."""
    backend = Backend(models.BPE({"a": 0}, []))
    backend.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
    return Tokenizer("made", backend, Roles())


def regex(pattern: str) -> Any:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def grouped(tokenizer: Tokenizer, text: str) -> list[str]:
    """Group the characters of a text by class."""
    groups: dict[int, str] = {}
    for char, number in zip(text, alphabet_of(tokenizer).of(text), strict=True):
        groups[number] = groups.get(number, "") + char
    return sorted(groups.values())


def test_every_range_splits_the_alphabet() -> None:
    assert grouped(splitting(regex(r"[!-/][A-Za-z]+|[一-龥]+|\p{L}+")), "!/:AzéЖ一龥龦0") == [
        "!/",
        ":0",
        "Az",
        "éЖ龦",
        "一龥",
    ]


def test_literals_ignoring_case_match_what_folds_to_them() -> None:
    tokenizer = splitting(regex("(?i:'s|'t)"), pre_tokenizers.Digits())
    assert grouped(tokenizer, "'sSſtTﬆﬅß a0²") == sorted(["'", " a", "0²", "S", "T", "s", "t", "ß", "ſ", "ﬅ", "ﬆ"])


def test_steps_without_a_pattern_are_asked_themselves() -> None:
    steps = pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Metaspace("▁", "never", True)
    assert grouped(splitting(*steps), "a .▁«b0") == [" ▁", ".«", "ab0"]


def test_a_class_is_represented_by_its_lowest_character() -> None:
    alphabet = alphabet_of(splitting(regex("[c-e]")))
    assert alphabet.representatives == "\0c"
    assert alphabet.members(1) == [range(ord("c"), ord("f"))]
    assert sum(map(len, alphabet.members(0))) == sys.maxunicode + 1 - 2048 - 3, "all but surrogates"


@pytest.mark.parametrize(
    ("pattern", "matchers"),
    [
        (r"[^]a]\]b", {r"[^]a]", r"\x{5D}", r"\x{62}"}),
        (r"[[:alpha:]&&[^\]x]]+", {r"[[:alpha:]&&[^\]x]]"}),
        (r"(?<=\p{Lu})\b(?!\S)$", {r"\p{Lu}", r"\w", r"\S", r"\x{A}"}),
        (r"a{2,5}\{\u0041\x{10FFFF}", {r"\x{61}", r"\x{7B}", r"\u0041", r"\x{10FFFF}"}),
        (r"(?<word>\d)(?#comment)(?>\h)", {r"\d", r"\h"}),
    ],
)
def test_patterns_are_taken_apart(pattern: str, matchers: set[str]) -> None:
    assert parts_of_pattern(pattern).matchers == matchers


def test_words_and_counts_of_a_pattern() -> None:
    parts = parts_of_pattern(r"(?i:'l|'d)|\p{N}{1,3}|a[b-c]d")
    assert parts.words == {(r"\x{27}", r"\x{6C}"), (r"\x{27}", r"\x{64}"), (r"\x{61}", "[b-c]", r"\x{64}")}
    assert parts.repeats == 3
    assert parts.insensitive and not parts_of_pattern("(?:a)").insensitive


def test_words_go_on_behind_groups() -> None:
    """A group's branches stand where the group does, not alone."""
    ends = {(r"\x{27}", r"\x{74}"), (r"\x{27}", r"\x{76}", r"\x{65}")}
    begun = {("[a-z]", *word) for word in ends}
    assert parts_of_pattern(r"(?#a(b)(?i)[a-z]+'(?:t|ve)").words == {*begun, (r"\x{76}", r"\x{65}")}
    assert parts_of_pattern(r"([a-z]+(?:'t|'ve)?| (?!\S))").words == {*begun, *ends, (r"\x{20}", r"\S")}


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", r"\X", r"(?~ab)", r"(?x: a )", r"\C-j", r"\M-a", r"\012", r"(?W:\w)", "(a|b)" * 9]
)
def test_what_is_not_about_single_characters_is_refused(pattern: str) -> None:
    with pytest.raises(TokenizerError, match="its pre-tokenizer's pattern"):
        parts_of_pattern(pattern)


def test_a_step_without_classes_is_refused_by_name() -> None:
    with pytest.raises(TokenizerError, match="UnicodeScripts"):
        alphabet_of(splitting(pre_tokenizers.UnicodeScripts()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "gpt4o-o200k", "llama-3.2", "mistral-nemo", "qwen2.5"])
def test_every_character_is_split_like_its_representative(name: str, real: Callable[[str], Tokenizer]) -> None:
    """All code points, one after the other, each in four contexts."""
    tokenizer = real(name)
    alphabet, pre_tokenizer = alphabet_of(tokenizer), tokenizer.backend.pre_tokenizer

    def ask(char: str) -> list[list[Any]]:
        texts = (context.format(char) for context in ("ж{}ж", " {}.", "'{} ", ".{}0"))
        return [[span for _, span in pre_tokenizer.pre_tokenize_str(text)] for text in texts]

    answers = list(map(ask, alphabet.representatives))
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)) != "Cs":
            assert ask(chr(code)) == answers[alphabet.of(chr(code))[0]], f"U+{code:04X}"


def test_adversarial_texts_come_from_the_tokenizer(byte_level: Backend) -> None:
    byte_level.pre_tokenizer = pre_tokenizers.Sequence(
        [regex(r"q{1,3}|xyz"), pre_tokenizers.ByteLevel(use_regex=False)]
    )
    byte_level.add_tokens([AddedToken("<call>", normalized=False)])
    tokenizer = Tokenizer("made", byte_level, Roles())
    texts = list(islice(adversarial_texts(tokenizer, random.Random(5), ["zdanie po polsku"]), 2000))
    assert texts == list(islice(adversarial_texts(tokenizer, random.Random(5), ["zdanie po polsku"]), 2000))
    for expected in ("xyz", "qqqq", "<call>", " kot", "danie", "\u3000"):
        assert any(expected in text for text in texts), expected


def test_adversarial_texts_hold_bytes_without_a_symbol(byte_level: Backend) -> None:
    spec = json.loads(byte_level.to_str())
    del spec["model"]["vocab"]["ĝ"]  # U+001D
    without = Tokenizer("made", Backend.from_str(json.dumps(spec)), Roles())
    assert any("\x1d" in text for text in islice(adversarial_texts(without, random.Random(5)), 500))
