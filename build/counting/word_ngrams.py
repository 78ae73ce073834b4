"""The most frequent word n-grams of a corpus, from its counts, in bounded memory."""

import heapq
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spectool.artifacts.formats.counts import Counts

_BLOCK = 1 << 18  # rows looked at together


class WordNgrams:
    """Exact counts of the word n-grams of a corpus that occur often enough.

    Attributes:
        counts: Their artifact, of the kind ``words``.
    """

    def __init__(self, counts: Counts) -> None:
        """Take counts of words.

        Raises:
            ArtifactError: They are counts of token windows.
        """
        self.counts = counts
        self._vocabulary = counts.vocabulary

    @property
    def total_words(self) -> int:
        """Words in the corpus."""
        return self.counts.total

    @property
    def figures(self) -> Mapping[int, Mapping[str, Any]]:
        """What the manifest says of every order: how many n-grams there are, and how many are kept."""
        return {int(order): figures for order, figures in self.counts.manifest.statistics["orders"].items()}

    def most_frequent(self, size: int, max_order: int = 3, min_count: int = 1) -> tuple[list[str], NDArray[np.int64]]:
        """Return the most frequent n-grams of orders 1..max_order together.

        Args:
            size: How many, over all orders.
            max_order: Highest order to take part.
            min_count: Leave out n-grams that occur less often.

        Returns:
            Texts and counts by falling count; ties by order, then by text, so that the choice
            does not depend on the order of the corpus.
        """
        if not size:
            return [], np.zeros(0, dtype=np.int64)
        orders = range(1, max_order + 1)
        threshold = max(min_count, self._kth_largest(size, orders))
        above = sorted(
            (-count, order, text) for order in orders for text, count in self._texts(order, threshold + 1, None)
        )
        ties: list[tuple[int, int, str]] = []
        for order in orders:
            missing = size - len(above) - len(ties)
            texts = (text for text, _ in self._texts(order, threshold, threshold))
            ties += ((-threshold, order, text) for text in heapq.nsmallest(missing, texts))
        chosen = [*above, *ties][:size]
        return [text for _, _, text in chosen], np.array([-count for count, _, _ in chosen], dtype=np.int64)

    def _kth_largest(self, k: int, orders: range) -> int:
        """Return the k-th largest count of these orders, or 1 when there are fewer."""
        largest = np.zeros(0, dtype=np.int64)
        for order in orders:
            counts = self.counts.level(order).count
            for start in range(0, len(counts), _BLOCK):
                largest = np.concatenate([largest, counts[start : start + _BLOCK]])
                if len(largest) > k:
                    largest = np.partition(largest, len(largest) - k)[len(largest) - k :]
        return 1 if len(largest) < k else int(largest.min())

    def _texts(self, order: int, low: int, high: int | None) -> Iterator[tuple[str, int]]:
        """Yield the n-grams of one order that occur ``low`` to ``high`` times, spelled, with their counts."""
        counts = self.counts.level(order).count
        for start in range(0, len(counts), _BLOCK):
            here = counts[start : start + _BLOCK]
            rows = start + np.flatnonzero((here >= low) & ((here <= high) if high is not None else True))
            columns = [self._words(symbols) for symbols in self.counts.spelled(order, rows).T]
            texts = pc.binary_join_element_wise(*columns, pa.scalar(" ", pa.large_string())).to_pylist()
            yield from zip(texts, counts[rows].tolist(), strict=True)

    def _words(self, symbols: NDArray[np.int32]) -> pa.Array:
        return self._vocabulary.take(pa.array(symbols.astype(np.int64) - 1))
