"""The method ``dictspec``, as in the DictSpec paper: frequent n-grams, prefix -> most probable continuation.

    n-gram       персональний комп'ютер            (count 12,400)
    tokens       _пер сон аль ний _ком п' ют ер
    splits       _пер | сон аль ний _ком п' ...    one at each boundary between tokens
                 _пер сон аль ний _ком | п' ют ер

For every prefix the continuation with the highest count is kept, if its probability given the prefix reaches a minimum.
Prefixes and continuations hold at most 8 tokens. An entry whose longest kept proper suffix proposes the same is left
out: a look-up takes the longest known suffix, so no proposal changes.

Source: "Dictionary-Based Speculative Decoding for Non-Latin-Script Languages", section 3.1, Table 1 and section 4.4.
"""

import heapq
import math
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, replace
from itertools import takewhile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spectool import ArtifactError, SpectoolError
from spectool.artifacts.atomic import atomic_directory
from spectool.artifacts.counts import Counts
from spectool.artifacts.dictionary import Dictionary, write_dictionary
from spectool.artifacts.manifest import Manifest
from spectool.build.corpus_reading import Progress, quiet
from spectool.build.counting.options import CountOptions
from spectool.build.counting.stage import count_text
from spectool.build.dictionary.options import DictSpecOptions
from spectool.build.dictionary.predictions import (
    Prediction,
    PredictionTable,
    TokenString,
    as_text,
    as_tokens,
    entries_of,
    longest_suffix,
)
from spectool.corpora import Corpus
from spectool.tokenization.tokenizer import Tokenizer

ORDERS = {"n1": 1, "n12": 2, "n123": 3}
EVERYTHING = CountOptions(min_count=1)
"""Keeps n-grams that occur once."""
_BLOCK = 1 << 18  # rows read at once


class WordNgrams(Counts):
    """Exact counts of the word n-grams of a corpus. They depend on no tokenizer, so they serve any dictionary."""

    def most_frequent(self, size: int, max_order: int = 3) -> tuple[list[str], NDArray[np.int64]]:
        """Texts and counts of the ``size`` most frequent n-grams of orders 1..max_order together.

        They are sorted by falling count, then by order, then by text, so the choice does not depend on the order of
        the corpus.
        """
        if not size:
            return [], np.zeros(0, dtype=np.int64)
        orders = range(1, max_order + 1)
        threshold = self._kth_largest(size, orders)
        chosen = sorted((-count, order, text) for order in orders for text, count in self._texts(order, threshold + 1))
        for order in orders:
            texts = (text for text, _ in self._texts(order, threshold, threshold))
            chosen += ((-threshold, order, text) for text in heapq.nsmallest(size - len(chosen), texts))
        return [text for _, _, text in chosen], np.array([-count for count, _, _ in chosen], dtype=np.int64)

    def _kth_largest(self, k: int, orders: range) -> int:
        """The k-th largest count of these orders, or 1 when there are fewer."""
        largest = np.zeros(0, dtype=np.int64)
        for order in orders:
            counts = self.level(order).count
            for start in range(0, len(counts), _BLOCK):
                largest = np.concatenate([largest, counts[start : start + _BLOCK]])
                if len(largest) > k:
                    largest = np.partition(largest, len(largest) - k)[len(largest) - k :]
        return 1 if len(largest) < k else int(largest.min())

    def _texts(self, order: int, low: int, high: float = math.inf) -> Iterator[tuple[str, int]]:
        """Yield the n-grams of one order that occur ``low`` to ``high`` times, spelled, with their counts."""
        counts = self.level(order).count
        for start in range(0, len(counts), _BLOCK):
            here = counts[start : start + _BLOCK]
            rows = start + np.flatnonzero((here >= low) & (here <= high))
            words = [self.vocabulary.take(pa.array(symbols - np.int64(1))) for symbols in self.spelled(order, rows).T]
            texts = pc.binary_join_element_wise(*words, pa.scalar(" ", pa.large_string())).to_pylist()
            yield from zip(texts, counts[rows].tolist(), strict=True)


def count_corpus(corpus: Corpus, orders: str = "n123", options: CountOptions = EVERYTHING) -> WordNgrams:
    """Count the word n-grams of a corpus, in a temporary directory that is removed with the result.

    A minimum count of 2 gives the same dictionary if the choice of the most frequent n-grams ends above single
    occurrences.
    """
    scratch = tempfile.TemporaryDirectory(prefix="spectool-")
    path = Path(scratch.name) / "words.counts"
    count_text(corpus, path, replace(options, orders=ORDERS[orders]), None, quiet)
    ngrams = open_counts(path, orders)
    weakref.finalize(ngrams, scratch.cleanup)
    return ngrams


def open_counts(path: Path, orders: str = "n123") -> WordNgrams:
    """Open counts that ``spectool count`` has written, and check them.

    Raises:
        ArtifactError: Not whole counts, or counts of token windows, or not of these orders.
    """
    ngrams = WordNgrams(path)
    _ = ngrams.vocabulary  # counts of token windows have none
    if ngrams.orders < ORDERS[orders]:
        raise ArtifactError(
            f"{path}: n-grams of up to {ngrams.orders} words, expected {ORDERS[orders]} for --orders {orders}. "
            f"Count again with --orders {ORDERS[orders]}, or build with fewer"
        )
    ngrams.check()
    return ngrams


def build_dictspec(
    tokenizer: Tokenizer, ngrams: WordNgrams, out: Path, options: DictSpecOptions, progress: Progress
) -> Manifest:
    """Build a DictSpec dictionary for the target's tokenizer and write it to ``out`` in one step.

    The counted words are at least of the orders that ``options`` asks for.

    Raises:
        SpectoolError: There is nothing to build from.
    """
    with atomic_directory(out) as directory:
        progress("choosing the most frequent n-grams")
        texts, counts = ngrams.most_frequent(options.entries, ORDERS[options.orders])
        progress("encoding")
        tokens = tokenizer.encode_after_space(texts)
        progress("building entries")
        predictions = predict(zip(tokens, counts.tolist(), strict=True), options, tokenizer.specials)
        if not predictions:
            raise SpectoolError(
                f"{ngrams.manifest.inputs['corpus']}: no entry to store from {ngrams.total} words at a minimum "
                f"probability of {options.min_probability}. Give more text, or a lower --min-prob"
            )
        progress("writing")
        shape = write_dictionary(directory, entries_of(without_redundant(predictions)))
        orders = ngrams.manifest.statistics["orders"]
        statistics = {
            "words": ngrams.total,
            "distinct_ngrams": {f"n{order}": figures["distinct"] for order, figures in orders.items()},
            "ngrams": len(texts),
            "smallest_count": int(counts[-1]),
            "entries_before_pruning": len(predictions),
            **shape,
        }
        return Dictionary.seal(
            directory,
            arguments={"method": "dictspec", **asdict(options)},
            tokenizers={"target": tokenizer.identity},
            inputs=ngrams.manifest.inputs,
            statistics=statistics,
        )


def predict(
    ngrams: Iterable[tuple[Sequence[int], int]], options: DictSpecOptions, specials: Set[int] = frozenset()
) -> PredictionTable:
    """The continuation of every prefix of some n-grams, given as token ids with counts, where one is probable enough.

    Of a prefix that is too long the last tokens count, of a continuation the first. ``specials`` stand for no text and
    must never be proposed, so n-grams are cut before the first.
    """
    return probable_continuations(continuations(ngrams, options, specials), options)


def probable_continuations(
    counted: Mapping[TokenString, dict[TokenString, int]], options: DictSpecOptions
) -> PredictionTable:
    """The continuation of every prefix, from the counts of `continuations`, where one is probable enough."""
    choose = _most_probable if options.reading == "whole" else _most_probable_path
    predictions: PredictionTable = {}
    for prefix, counts in counted.items():
        total = sum(counts.values())
        continuation, count = choose(counts, total, options.min_probability)
        # Compared as quotients: 7 of 100 reach 0.07, but 7 >= 0.07 * 100 is false.
        if continuation and count / total >= options.min_probability:
            predictions[prefix] = Prediction(as_tokens(continuation), count / total, total)
    return predictions


def without_redundant(predictions: PredictionTable) -> PredictionTable:
    """Those predictions whose longest kept proper suffix does not predict the same tokens; short prefixes first."""
    kept: PredictionTable = {}
    for context in sorted(predictions, key=len):
        fallback = longest_suffix(context, kept)
        if fallback is None or fallback.continuation != predictions[context].continuation:
            kept[context] = predictions[context]
    return kept


def continuations(
    ngrams: Iterable[tuple[Sequence[int], int]], options: DictSpecOptions, specials: Set[int]
) -> dict[TokenString, dict[TokenString, int]]:
    """The counts of the continuations of every prefix, over every split of every n-gram."""
    counts: defaultdict[TokenString, dict[TokenString, int]] = defaultdict(dict)
    for tokens, count in ngrams:
        if not specials.isdisjoint(tokens):
            tokens = list(takewhile(lambda token: token not in specials, tokens))
        text = as_text(tokens)
        for cut in range(1, len(text)):
            following = counts[text[max(0, cut - options.max_prefix) : cut]]
            continuation = text[cut : cut + options.max_continuation]
            following[continuation] = following.get(continuation, 0) + count
    return counts


def _most_probable(counts: dict[TokenString, int], total: int, least: float) -> tuple[TokenString, int]:
    """The continuation with the highest count; of equals the shortest, then the one with the lowest ids."""
    best = min(counts, key=lambda continuation: (-counts[continuation], len(continuation), continuation))
    return best, counts[best]


def _most_probable_path(counts: dict[TokenString, int], total: int, least: float) -> tuple[TokenString, int]:
    """The tokens with the highest count one after the other, while the path's probability is at least ``least``."""
    path, mass = "", total
    while len(counts) > 1:
        following: defaultdict[str, int] = defaultdict(int)
        for continuation, count in counts.items():
            if len(continuation) > len(path):
                following[continuation[len(path)]] += count
        token = min(following, key=lambda token: (-following[token], token))
        if following[token] / total < least:
            return path, mass
        path, mass = path + token, following[token]
        counts = {text: count for text, count in counts.items() if text.startswith(path)}
    ((whole, count),) = counts.items()
    return (whole, count) if count / total >= least else (path, mass)
