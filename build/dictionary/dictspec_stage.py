"""The stage behind ``spectool build-dict --method dictspec``: corpus and tokenizer in, dictionary artifact out."""

import heapq
import math
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spectool import ArtifactError, SpectoolError
from spectool.artifacts.atomic import writing
from spectool.artifacts.counts import Counts
from spectool.artifacts.dictionary import FORMAT, VERSION, write_dictionary
from spectool.artifacts.manifest import Manifest, seal
from spectool.build.corpus_reading import Progress, quiet
from spectool.build.counting.options import CountOptions
from spectool.build.counting.stage import count
from spectool.build.dictionary.dictspec import predict, without_redundant
from spectool.build.dictionary.options import DictSpecOptions
from spectool.build.dictionary.predictions import entries_of
from spectool.corpora import Corpus
from spectool.tokenization.tokenizer import Tokenizer

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


ORDERS = {"n1": 1, "n12": 2, "n123": 3}
EVERYTHING = CountOptions(min_count=1)
"""Keeps n-grams that occur once."""


def count_corpus(corpus: Corpus, orders: str = "n123", options: CountOptions = EVERYTHING) -> WordNgrams:
    """Count the word n-grams of a corpus, in a temporary directory that is removed with the result.

    Args:
        corpus: Text.
        orders: Longest n-gram: ``n1``, ``n12`` or ``n123``.
        options: Limits, language and minimum count. A minimum of 2 gives the same dictionary if the choice of the most
            frequent n-grams ends above single occurrences.

    Raises:
        CorpusError: The text cannot be read.
    """
    scratch = tempfile.TemporaryDirectory(prefix="spectool-")
    path = Path(scratch.name) / "words.counts"
    count(corpus, path, replace(options, orders=ORDERS[orders]), None, quiet)
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

    Args:
        tokenizer: The target's.
        ngrams: Counted words, at least of the orders that ``options`` asks for.
        out: Directory of the artifact.
        options: See `DictSpecOptions`.
        progress: Called at the start of each step with a short description.

    Raises:
        SpectoolError: There is nothing to build from.
    """
    with writing(out) as directory:
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
        manifest = Manifest(
            format=FORMAT,
            version=VERSION,
            arguments={"method": "dictspec", **asdict(options)},
            tokenizers={"target": tokenizer.identity},
            inputs=ngrams.manifest.inputs,
            statistics=statistics,
        )
        return seal(directory, manifest)
