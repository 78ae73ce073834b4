"""Counting word n-grams in memory: exact counts of words, bigrams and trigrams.

Words become integers in order of appearance; an n-gram is the number of its first n-1
words times the vocabulary size plus its last word, so that one sort per order counts all.
About 40 bytes a word of corpus at the peak.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

_BREAK = 0  # word id between runs: no n-gram may contain it


@dataclass(frozen=True, slots=True)
class NgramCounts:
    """All n-grams of one order.

    Attributes:
        order: Words in each n-gram.
        words: Word ids, shape ``[n-grams, order]``, int32.
        counts: Occurrences, shape ``[n-grams]``, int64.
    """

    order: int
    words: NDArray[np.int32]
    counts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WordNgrams:
    """Exact counts of the n-grams of a corpus.

    Attributes:
        vocabulary: Word of each id; id 0 is not a word.
        orders: Counts of order 1, 2, ... in this order.
        total_words: Words in the corpus.
    """

    vocabulary: list[str]
    orders: list[NgramCounts]
    total_words: int

    def text(self, order: int, index: int) -> str:
        """Spell one n-gram, its words separated by single spaces."""
        return " ".join(self.vocabulary[word] for word in self.orders[order - 1].words[index])

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
        chosen = self.orders[:max_order]
        counts = np.concatenate([ngrams.counts for ngrams in chosen])
        order_of = np.repeat([n.order for n in chosen], [len(n.counts) for n in chosen])
        index_of = np.concatenate([np.arange(len(n.counts)) for n in chosen])
        threshold = max(min_count, _kth_largest(counts, size))

        def rows(mask: NDArray[np.bool_]) -> list[tuple[int, int, str, int]]:
            places = zip(counts[mask].tolist(), order_of[mask].tolist(), index_of[mask].tolist(), strict=True)
            return sorted((-c, order, self.text(order, index), c) for c, order, index in places)

        above = rows(counts > threshold)
        ranked = (above + rows(counts == threshold))[:size]
        return [row[2] for row in ranked], np.array([row[3] for row in ranked], dtype=np.int64)


def count_word_ngrams(runs: Iterable[Sequence[str]], max_order: int = 3) -> WordNgrams:
    """Count the word n-grams of a corpus.

    Args:
        runs: Word sequences; n-grams never cross from one to the next.
        max_order: Longest n-gram, in words.
    """
    ids: defaultdict[str, int] = defaultdict(count(1).__next__)
    corpus = np.fromiter(_word_ids(runs, ids), dtype=np.int32)
    vocabulary = ["", *ids]
    counts = np.bincount(corpus, minlength=len(vocabulary))[1:]
    orders = [NgramCounts(1, np.arange(1, len(vocabulary), dtype=np.int32)[:, None], counts)]
    # row[i]: row in the order before of the n-gram that ends at position i, -1 where none does.
    row = corpus.astype(np.int64) - 1
    for order in range(2, max_order + 1):
        keys = row[:-1] * len(vocabulary) + corpus[1:]
        keys[(row[:-1] < 0) | (corpus[1:] == _BREAK)] = -1
        unique, numbers, counts = np.unique(keys, return_inverse=True, return_counts=True)
        broken = int(unique[:1].sum() < 0)  # -1 sorts first
        heads, last = np.divmod(unique[broken:], len(vocabulary))
        words = np.column_stack([orders[-1].words[heads], last]).astype(np.int32)
        orders.append(NgramCounts(order, words, counts[broken:]))
        row = np.concatenate([[-1], numbers - broken])
    return WordNgrams(vocabulary, orders, int((corpus != _BREAK).sum()))


def _word_ids(runs: Iterable[Sequence[str]], ids: defaultdict[str, int]) -> Iterator[int]:
    return chain.from_iterable([*map(ids.__getitem__, run), _BREAK] for run in runs)


def _kth_largest(values: NDArray[np.int64], k: int) -> int:
    """Return the k-th largest value, or 1 when there are fewer."""
    if k <= 0 or len(values) <= k:
        return 1
    return int(np.partition(values, len(values) - k)[len(values) - k])
