"""BPE on ids and the merge-site lemma, against the tokenizers' own BPE on strings."""

import json
import random
from collections.abc import Callable, Iterator
from itertools import product
from time import process_time

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend

from spectool.tests.tokenization.incremental.oracle import QUICK, counted
from spectool.tokenization.incremental.by_ids import IncrementalBPE
from spectool.tokenization.incremental.merges import SYMBOL, Merges, MergeTable
from spectool.tokenization.running_text import RunningText
from spectool.tokenization.tokenizer import Tokenizer

Pair = tuple[int, int]

# Symbols a b c = 0 1 2. Then aa = 3 by rank 0, ab = 4 by rank 1, aab = 5 by rank 2 (aa b), bc = 6 by rank 3.
LEFT = [SYMBOL, SYMBOL, SYMBOL, 0, 0, 3, 1]
RIGHT = [SYMBOL, SYMBOL, SYMBOL, 0, 1, 1, 2]
RANK = [-1, -1, -1, 0, 1, 2, 3]
MERGES = {(0, 0): (0, 3), (0, 1): (1, 4), (1, 2): (3, 6), (3, 1): (2, 5)}


def table(merges: dict[Pair, Pair]) -> MergeTable:
    pairs = sorted(merges)
    return MergeTable(
        *(np.array(column, np.int32) for column in (LEFT, RIGHT, RANK)),
        np.array([first << 32 | second for first, second in pairs], np.int64),
        np.array([merges[pair][0] for pair in pairs], np.int32),
        np.array([merges[pair][1] for pair in pairs], np.int32),
    )


@pytest.fixture
def small() -> Merges:
    return Merges(table(MERGES), {b"a": 0, b"b": 1, b"c": 2}, {})


def test_every_token_of_the_table_is_reachable(small: Merges) -> None:
    assert [small.reachable(token) for token in range(7)] == [True] * 7


def test_lowest_rank_first_then_leftmost(small: Merges) -> None:
    assert small.merge([0, 0, 0]) == [3, 0]
    assert small.merge([0, 0, 1]) == [5]
    assert small.merge([0, 0, 0, 1]) == [3, 4]
    assert small.merge([0, 1, 2]) == [4, 2]
    assert small.merge([]) == []


def test_tokens_come_apart_into_symbols(small: Merges) -> None:
    assert small.symbols([5, 6]) == [0, 0, 1, 1, 2]
    assert small.spell(b"aab") == [0, 0, 1]
    assert small.spell(b"axb") == [0, 1], "what has no symbol is left out, as BPE does"


def test_equal_ranks_merge_from_the_left(small: Merges) -> None:
    """``aa a`` stays, for the left pair goes first; ``a aa`` does not."""
    assert not small.would_merge(3, 0)
    assert small.would_merge(0, 3)
    assert not small.would_merge(3, 3)
    assert not small.would_merge(4, 2)  # the b of ab is consumed before bc could be made
    assert small.would_merge(3, 1)


def test_all_pairs_of_a_small_vocabulary(small: Merges) -> None:
    for pair in product(range(7), repeat=2):
        assert small.would_merge(*pair) == (small.merge(small.symbols(pair)) != list(pair)), pair


def test_bytes_that_complete_a_character_become_it() -> None:
    """Ids: é = 0, then the bytes C3 A9 FF."""
    empty = np.zeros(0, np.int32)
    left = np.full(4, SYMBOL, np.int32)
    alone = MergeTable(left, left, np.full(4, -1, np.int32), np.zeros(0, np.int64), empty, empty)
    merges = Merges(alone, {"é".encode(): 0}, {1: 0xC3, 2: 0xA9, 3: 0xFF})
    assert merges.symbols([1, 2]) == [0]
    assert merges.symbols([2, 1, 2, 3, 1]) == [2, 0, 3, 1]
    assert merges.spell(b"\xc3\xa9\xff\xc3") == [0, 3, 1]
    assert merges.is_byte(1) and not merges.is_byte(0)


class StringBPE:
    """BPE as the tokenizer itself does it, on strings, without its pre-tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        spec = json.loads(tokenizer.backend.to_str())
        spec["model"]["ignore_merges"] = False
        self._model = Backend.from_str(json.dumps(spec)).model
        self._names = {index: token for token, index in spec["model"]["vocab"].items()}

    def would_merge(self, first: int, second: int) -> bool:
        found = self._model.tokenize(self._names[first] + self._names[second])
        return [token.id for token in found] != [first, second]


def by_category(tokenizer: Tokenizer, usable: list[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Left and right sides that meet where tokenizers are wont to go wrong."""
    texts = [(token, tokenizer.token_bytes[token]) for token in usable]
    apostrophes = ("'", "’", "ʼ")
    ends: list[tuple[Callable[[bytes], bool], Callable[[bytes], bool]]] = [
        (lambda s: s[-1:].isdigit(), lambda s: s[:1].isdigit()),
        (lambda s: s.endswith(tuple(a.encode() for a in apostrophes)), lambda s: s[:1].isalpha()),
        (lambda s: s[-1:].isalpha(), lambda s: s.startswith(tuple(a.encode() for a in apostrophes))),
        (lambda s: s.endswith(b" "), lambda s: s.startswith(b" ")),
        (lambda s: s.endswith((b"\n", b"\r", b"\t")), lambda s: s[:1].isspace()),
        (lambda s: s[-1] >= 0xC0, lambda s: s[0] & 0xC0 == 0x80),  # split characters
        (lambda s: s[-1] >= 0x80, lambda s: s[0] >= 0x80),
        (lambda s: len(set(s)) == 1, lambda s: len(set(s)) == 1),  # repeated letters
        (lambda s: s[-1:] in (b".", b",", b"-", b"_", b"/"), lambda s: s[:1].isalpha()),
        (lambda s: True, lambda s: s.startswith(("\u0301".encode(), "\u0306".encode(), "\u0308".encode()))),
        (lambda s: s.endswith((b"'", b" '")), lambda s: s in (b"s", b"re", b"ll", b"ve", b"m", b"d", b"t")),
        (lambda s: len(s) <= 2, lambda s: len(s) <= 2),
        (lambda s: True, lambda s: True),
    ]
    for left, right in ends:
        yield [t for t, s in texts if left(s)], [t for t, s in texts if right(s)]


def cut_pairs(tokenizer: Tokenizer, lines: list[str], rng: random.Random, count: int) -> Iterator[Pair]:
    """Neighbours of real text cut at random characters: both sides by themselves, then side by side."""
    for _ in range(count):
        line = rng.choice(lines)
        at = rng.randrange(len(line) + 1)
        left, right = tokenizer.encode(line[max(0, at - 20) : at]), tokenizer.encode("\n" + line[at : at + 20])
        for token in right[:3]:
            if left:
                yield left[-1], token


def check_lemma(
    tokenizer: Tokenizer, merges: Merges, lines: list[str], rng: random.Random, count: int
) -> tuple[int, int]:
    """Compare ``count`` pairs of each category; return the pairs and the merge sites among them."""
    oracle = StringBPE(tokenizer)
    vocabulary = tokenizer.model["vocab"].values()
    usable = [token for token in vocabulary if merges.reachable(token) and not merges.is_byte(token)]
    usable = [token for token in usable if tokenizer.token_bytes[token]]
    known = frozenset(usable)
    pairs: set[Pair] = set()
    for left, right in by_category(tokenizer, usable):
        if left and right:
            pairs |= set(zip(rng.choices(left, k=count), rng.choices(right, k=count), strict=True))
    pairs |= {pair for pair in cut_pairs(tokenizer, lines, rng, count) if known.issuperset(pair)}
    sites = 0
    for pair in sorted(pairs):
        expected = oracle.would_merge(*pair)
        assert merges.would_merge(*pair) == expected, (pair, [tokenizer.token_bytes[token] for token in pair])
        assert (merges.merge(merges.symbols(pair)) != list(pair)) == expected, pair
        sites += expected
    return len(pairs), sites


@pytest.mark.parametrize(("name", "count"), counted(500, 10_000))
def test_the_lemma_agrees_with_the_tokenizer(
    name: str,
    count: int,
    real: Callable[[str], Tokenizer],
    encoder: Callable[[str], IncrementalBPE],
    lines: list[str],
    rng: random.Random,
) -> None:
    pairs, sites = check_lemma(real(name), encoder(name).merges, lines, rng, count)
    print(f"{name}: {pairs:,} pairs, {sites:,} merge sites, no mismatch")
    assert pairs > 4 * count
    assert sites > 200


@pytest.mark.parametrize("name", QUICK[:1])
def test_long_runs_are_merged_alike_by_a_heap(
    name: str, encoder: Callable[[str], IncrementalBPE], lines: list[str], rng: random.Random
) -> None:
    merges = encoder(name).merges
    texts = [*(line[:60] for line in lines[:100]), "!" * 60, "aaab" * 15, "".join(rng.choices("ab -", k=60))]
    for text in texts:
        symbols = merges.spell(text.encode())[:64]
        assert merges._merge_long(list(symbols)) == merges.merge(symbols), text


def test_one_word_of_many_letters(real: Callable[[str], Tokenizer], encoder: Callable[[str], IncrementalBPE]) -> None:
    text = "zażółcićgęśląjaźń" * 1000
    expected = RunningText(real("bielik-11b-v2.5")).backend.encode(text, add_special_tokens=False).ids
    merges = encoder("bielik-11b-v2.5").merges
    begun = process_time()
    assert merges.merge(merges.spell(text.encode())) == expected
    assert process_time() - begun < 1, "seconds, where looking through all symbols takes minutes"
