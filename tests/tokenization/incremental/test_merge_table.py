"""Which tokenizers the merge-site lemma holds for, and the merge tables of those."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from spectool.tokenization.incremental.ids_or_text import reasons_for_text
from spectool.tokenization.incremental.merge_table import merge_table
from spectool.tokenization.incremental.merges import SYMBOL, UNREACHABLE
from spectool.tokenization.roles import Roles
from spectool.tokenization.token_bytes import byte_symbols
from spectool.tokenization.tokenizer import Tokenizer


def byte_level(tokens: list[str], merges: list[tuple[str, str]], **options: object) -> Tokenizer:
    names = [*byte_symbols(), *tokens]
    backend = Backend(models.BPE({name: place for place, name in enumerate(names)}, merges, **options))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    backend.add_special_tokens(["<|end|>"])
    return Tokenizer("made", backend, Roles())


def test_the_last_merge_of_each_token() -> None:
    tokenizer = byte_level(["ko", "kot", "Ġkot"], [("k", "o"), ("ko", "t"), ("Ġ", "kot")])
    table, ids = merge_table(tokenizer), tokenizer.vocabulary
    assert (table.left[ids["k"]], table.right[ids["k"]], table.rank[ids["k"]]) == (SYMBOL, SYMBOL, -1)
    assert (table.left[ids["kot"]], table.right[ids["kot"]], table.rank[ids["kot"]]) == (ids["ko"], ids["t"], 1)
    assert (table.left[ids["Ġkot"]], table.right[ids["Ġkot"]]) == (ids["Ġ"], ids["kot"])
    assert table.left[ids["<|end|>"]] == UNREACHABLE
    assert len(table.left) == tokenizer.size
    assert table.ranks.tolist() == [table.rank[token] for token in table.results]
    assert (np.diff(table.pairs) > 0).all()
    assert sorted(table.pairs.tolist()) == sorted(
        ids[first] << 32 | ids[second] for first, second in (("k", "o"), ("ko", "t"), ("Ġ", "kot"))
    )


def test_the_merge_that_is_really_done_last_counts() -> None:
    """``kot`` = ``k`` + ``ot`` is in the list, but ``ko`` always comes first."""
    merges = [("k", "o"), ("o", "t"), ("k", "ot"), ("ko", "t")]
    tokenizer = byte_level(["ko", "ot", "kot"], merges)
    table, ids = merge_table(tokenizer), tokenizer.vocabulary
    assert (table.left[ids["kot"]], table.right[ids["kot"]], table.rank[ids["kot"]]) == (ids["ko"], ids["t"], 3)


def test_tokens_that_merging_does_not_give_back() -> None:
    """``ot`` is never made inside ``kot``; ``xyz`` has no merge at all."""
    tokenizer = byte_level(["ko", "ot", "kot", "xyz"], [("k", "o"), ("o", "t"), ("k", "ot")])
    table, ids = merge_table(tokenizer), tokenizer.vocabulary
    assert [int(table.left[ids[name]]) for name in ("kot", "xyz")] == [UNREACHABLE, UNREACHABLE]
    assert table.left[ids["ot"]] == ids["o"]


def test_byte_tokens_are_symbols(bundled: Tokenizer) -> None:
    table = merge_table(bundled)
    assert bundled.byte_tokens
    assert (table.left[sorted(bundled.byte_tokens)] == SYMBOL).all()


@pytest.mark.parametrize("options", [{"end_of_word_suffix": "</w>"}, {"continuing_subword_prefix": "##"}])
def test_no_lemma_for_marks(options: dict[str, object]) -> None:
    assert not reasons_for_text(byte_level([], []))
    assert reasons_for_text(byte_level([], [], **options))


def test_no_lemma_where_splitting_goes_on_after_bytes() -> None:
    tokenizer = byte_level([], [])
    bytes_last = pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), pre_tokenizers.ByteLevel(False)])
    bytes_first = pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(), pre_tokenizers.Digits()])
    for pre_tokenizer, expected in ((bytes_last, True), (bytes_first, False)):
        tokenizer.backend.pre_tokenizer = pre_tokenizer
        assert (not reasons_for_text(Tokenizer("made", tokenizer.backend, Roles()))) == expected


def test_real_tokenizers(real: Callable[[str], Tokenizer]) -> None:
    for name, expected in (
        ("bielik-11b-v2.5", True),
        ("falcon-7b", False),
        ("herbert-base-cased", False),
        ("t5-small", False),
        ("bert-base-uncased", False),
    ):
        assert (not reasons_for_text(real(name))) == expected, name


def test_every_merge_of_a_real_tokenizer_is_there(real: Callable[[str], Tokenizer]) -> None:
    tokenizer = real("mistral-7b-v0.1")
    model, table = json.loads(tokenizer.backend.to_str())["model"], merge_table(tokenizer)
    ids = model["vocab"]
    merges = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]
    found = dict(zip(table.pairs.tolist(), zip(table.ranks.tolist(), table.results.tolist(), strict=True), strict=True))
    for rank, (first, second) in enumerate(merges):
        assert found[ids[first] << 32 | ids[second]] == (rank, ids[first + second])
    made = np.flatnonzero(table.left >= 0)
    for token in made.tolist():
        left, right = int(table.left[token]), int(table.right[token])
        assert found[left << 32 | right] == (table.rank[token], token)
        assert tokenizer.token_bytes[left] + tokenizer.token_bytes[right] == tokenizer.token_bytes[token]


@pytest.mark.parametrize(
    "name",
    [
        "bielik-11b-v2.5",
        "bielik-4.5b-v3-apt4",
        "gpt2",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("gemma-3", "llama-3.2", "qwen2.5", "gpt4o-o200k")),
    ],
)
def test_every_tree_is_what_merging_the_characters_gives(name: str, real: Callable[[str], Tokenizer]) -> None:
    tokenizer = real(name)
    table, vocabulary = merge_table(tokenizer), tokenizer.model["vocab"]
    made = zip(table.ranks.tolist(), table.results.tolist(), strict=True)
    merges = {(pair >> 32, pair & 0xFFFFFFFF): merge for pair, merge in zip(table.pairs.tolist(), made, strict=True)}
    for text, token in vocabulary.items():
        if token in tokenizer.specials or len(text) == 1 or token in tokenizer.byte_tokens:
            continue
        last = last_merge([vocabulary.get(char, -1) for char in text], merges)
        expected = last if last is not None and merges[last][1] == token else (UNREACHABLE, UNREACHABLE)
        assert (table.left[token], table.right[token]) == expected, text
        assert table.rank[token] == (-1 if UNREACHABLE in expected else merges[expected][0]), text


def last_merge(symbols: Sequence[int], merges: dict[tuple[int, int], tuple[int, int]]) -> tuple[int, int] | None:
    """The last merge of symbols that BPE makes a single token of; None if it does not."""
    ids, last = list(symbols), None
    while len(ids) > 1:
        known = [(merges[pair][0], at, pair) for at, pair in enumerate(pairwise(ids)) if pair in merges]
        if not known:
            return None
        _, at, last = min(known)
        ids[at : at + 2] = [merges[last][1]]
    return last
