"""All dictionaries at once give what `build.dictionary.dictspec` gives one at a time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spectool.artifacts.dictionary import Entry
from spectool.build.dictionary.dictspec import predict, without_redundant
from spectool.build.dictionary.options import DictSpecOptions, DictSpecReading
from spectool.build.dictionary.predictions import entries_of
from spectool.corpora import open_corpus, word_runs
from spectool.lab.sweep.nested_dictspec import NestedDictSpec
from spectool.tokenization import Tokenizer

READINGS: tuple[DictSpecReading, ...] = ("whole", "path")
FLOORS = (0.0, 0.2, 0.5, 0.8, 1.0)

token = st.integers(0, 4)
ngrams = st.lists(st.tuples(st.lists(token, max_size=14), st.integers(1, 9)), max_size=12)
documents = st.lists(st.lists(token, max_size=20), max_size=4)


def looked_up(known: Mapping[tuple[int, ...], tuple[int, ...]], history: Sequence[int]) -> tuple[int, ...]:
    """The continuation of the longest known suffix."""
    suffixes = (tuple(history[start:]) for start in range(len(history)))
    return next((known[suffix] for suffix in suffixes if suffix in known), ())


def accepted(proposal: Sequence[int], truth: Sequence[int]) -> int:
    right = 0
    while right < min(len(proposal), len(truth)) and proposal[right] == truth[right]:
        right += 1
    return right


def by_context(entry: Entry) -> Sequence[int]:
    return entry.context


def compare(
    found: Sequence[tuple[Sequence[int], int]],
    texts: Sequence[Sequence[int]],
    sizes: Sequence[int],
    limit: int,
    specials: frozenset[int] = frozenset(),
) -> None:
    counts = np.array([count for _, count in found], dtype=np.int64)
    nested = NestedDictSpec([tokens for tokens, _ in found], counts, texts, specials)
    for size in sizes:
        for reading in READINGS:
            proposals = nested.proposals(size, reading)
            for floor in FLOORS:
                options = DictSpecOptions(min_probability=floor, reading=reading)
                entries = entries_of(without_redundant(predict(found[:size], options, specials)))
                lengths = proposals.lengths(floor)
                where = f"{size} n-grams, {reading}, {floor}"
                kept = nested.kept(proposals, lengths)
                stored = nested.entries(proposals, lengths, kept)
                assert sorted(stored, key=by_context) == sorted(entries, key=by_context), where
                drafts = nested.drafts(proposals, lengths, limit)
                known = {entry.context: entry.continuation for entry in entries}
                expected = []
                for text in texts:
                    for place in range(len(text)):
                        proposal = looked_up(known, text[max(0, place - 8) : place])[:limit]
                        expected.append((len(proposal), accepted(proposal, text[place:])))
                assert list(zip(drafts.proposed.tolist(), drafts.accepted.tolist(), strict=True)) == expected, where


@settings(deadline=None)
@given(ngrams, documents, st.integers(0, 12), st.integers(0, 9))
def test_any_ngrams(found: list[tuple[list[int], int]], texts: list[list[int]], size: int, limit: int) -> None:
    compare(found, texts, (size, len(found)), limit)


@settings(deadline=None)
@given(ngrams, documents)
def test_special_tokens_cut_ngrams(found: list[tuple[list[int], int]], texts: list[list[int]]) -> None:
    compare(found, texts, (len(found),), 8, specials=frozenset({0, 3}))


@pytest.mark.parametrize("name", ["bielik-11b-v2.5", "gemma-3", "qwen2.5"])
def test_real_text(real: Callable[[str], Tokenizer], name: str) -> None:
    tokenizer = real(name)
    words: dict[str, int] = {}
    texts = [document.text for document in open_corpus("sample:uk")]
    for text in texts:
        for run in word_runs(text):
            for length in (1, 2, 3):
                for start in range(len(run) - length + 1):
                    ngram = " ".join(run[start : start + length])
                    words[ngram] = words.get(ngram, 0) + 1
    frequent = sorted(words.items(), key=lambda item: (-item[1], item[0]))[:2000]
    tokens = tokenizer.encode_after_space([ngram for ngram, _ in frequent])
    found: list[tuple[Any, int]] = [(ids, count) for ids, (_, count) in zip(tokens, frequent, strict=True)]
    compare(found, tokenizer.encode_batch(texts[:20]), (100, 2000), 8, tokenizer.specials)
