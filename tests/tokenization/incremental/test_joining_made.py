"""Joining with tokenizers of a few merges, made for one case each."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from spectool.tests.tokenization.incremental.oracle import Reference, joined
from spectool.tokenization.incremental.by_ids import IncrementalBPE
from spectool.tokenization.roles import Roles
from spectool.tokenization.token_bytes import byte_symbols
from spectool.tokenization.tokenizer import Tokenizer


def byte_level(names: Sequence[str], merges: Sequence[tuple[str, str]], pattern: str = "") -> Tokenizer:
    """A byte-level tokenizer of a few merges with an added token, split by GPT-2's pattern or another one."""
    vocabulary = {name: place for place, name in enumerate([*byte_symbols(), *names])}
    backend = Backend(models.BPE(vocabulary, list(merges)))
    splits: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated")] if pattern else []
    splits.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pattern))
    backend.pre_tokenizer = pre_tokenizers.Sequence(splits)
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens([AddedToken("<think>", normalized=False)])
    return Tokenizer("made", backend, Roles())


def prepared(tokenizer: Tokenizer) -> tuple[IncrementalBPE, Reference]:
    return IncrementalBPE(tokenizer), Reference(tokenizer)


def test_a_join_next_to_an_added_token_is_not_taken_over() -> None:
    """What is remembered of `<think>ab` and `c` says nothing of `wab` and `c`, because `abc` merges with `w`."""
    encoder, oracle = prepared(byte_level(["bc", "abc", "wabc"], [("b", "c"), ("a", "bc"), ("w", "abc")]))
    for before in ("<think>ab", "wab", "<think>wab"):
        ids = oracle.encode(before)
        assert joined(encoder.join(ids, b"c"), ids) == oracle.encode(before + "c")


def test_the_end_of_a_character_merges_with_what_follows() -> None:
    """The first half of a letter is committed, so that its second half and the next letter are one token."""
    signs = {byte: sign for sign, byte in byte_symbols().items()}
    first, second, *letter = (signs[byte] for byte in "го".encode())
    whole = "".join(letter)
    tokenizer = byte_level([whole, second + whole], [(letter[0], letter[1]), (second, whole)])
    encoder, _ = prepared(tokenizer)
    committed = [tokenizer.vocabulary[first]]
    found = joined(encoder.join(committed, "го".encode()[1:], floor=1), committed)
    assert found == [*committed, tokenizer.vocabulary[second + whole]]


def test_a_run_of_digits_of_any_length(rng: random.Random) -> None:
    """Digits are grouped from where their run begins, which is further back than is encoded again."""
    tokenizer = byte_level(["11"], [("1", "1")], r"\p{N}{1,3}|[^\p{N}]+")
    encoder, oracle = prepared(tokenizer)
    text, end = "a" + "1" * 3000, 0
    ids: list[int] = []
    while end < len(text):
        begin, end = end, end + rng.choice((2, 5, 7, 100))
        ids = joined(encoder.join(ids, text[begin:end].encode()), ids)
        assert ids == oracle.encode(text[:end]), len(text[:end])


@pytest.mark.parametrize("text", ["'s't" * 60 + "'t" * 50, "'re" * 60 + "'t" * 40])
def test_text_that_repeats_itself(text: str, rng: random.Random) -> None:
    """Its end alone is split otherwise, and yet into some of the same ids: a few of them prove nothing."""
    merges = [("'", "t"), ("'t", "'t"), ("r", "e"), ("re", "re")]
    tokenizer = byte_level(list(map("".join, merges)), merges, r"[^\p{L}]?\p{L}+(?:'s|'t|'re)?")
    encoder, oracle = prepared(tokenizer)
    ids, end = list[int](), 0
    while end < len(text):
        begin, end = end, end + rng.randint(1, 9)
        ids = joined(encoder.join(ids, text[begin:end].encode()), ids)
        assert ids == oracle.encode(text[:end]), text[:end]


@pytest.mark.parametrize(
    "text", ["kot kot", "  kot  ", "kot's kots", "kkkkk", "a<think>kot", "<th<think>ink>", "\n \n kot"]
)
def test_every_cut_of_short_texts(text: str) -> None:
    merges = [("k", "o"), ("ko", "t"), ("Ġ", "kot"), ("Ġ", "Ġ"), ("'", "s"), ("k", "k")]
    encoder, oracle = prepared(byte_level(list(map("".join, merges)), merges))
    whole = oracle.encode(text)
    for at in range(len(text) + 1):
        left, right = oracle.encode(text[:at]), oracle.encode(text[at:])
        assert joined(encoder.join(left, text[at:].encode()), left) == whole, at
        assert encoder.boundary_holds(left, text[at:].encode()) == (
            not left or not right or at in oracle.ends(whole)
        ), at
