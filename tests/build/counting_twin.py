"""The slow, readable twin of counting: one `collections.Counter` over all windows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from spectool.build.corpus_reading import quiet
from spectool.build.counting import Counts, count_windows
from spectool.corpora import Corpus
from spectool.tokenization.tokenizer import Tokenizer

Windows = Counter[tuple[Any, ...]]


def token_windows(texts: Sequence[str], tokenizer: Tokenizer, order: int) -> Windows:
    """Count the windows of tokens; none reaches over a special token or the end of a document."""
    encoded = (tokenizer.encode(text) for text in texts)
    pieces = (
        list(piece)
        for ids in encoded
        for special, piece in groupby(ids, tokenizer.specials.__contains__)
        if not special
    )
    return windows_of(pieces, order)


def windows_of(runs: Iterable[Sequence[Any]], order: int) -> Windows:
    return Counter(tuple(run[at : at + order]) for run in runs for at in range(len(run) - order + 1))


def counted(corpus: Corpus, tokenizer: Tokenizer, orders: int, min_count: int) -> Counts:
    """The counts of all documents."""
    return count_windows(corpus, corpus, tokenizer, orders, min_count, quiet)


def spelled(counts: Counts, order: int) -> dict[tuple[Any, ...], int]:
    """The n-grams of an order in the twin's form, which are checked to be sorted and different."""
    level = counts.levels[order - 1]
    assert (level.prefix.dtype, level.symbol.dtype, level.count.dtype) == (np.int32, np.int32, np.int64)
    symbols = counts.spelled(order, np.arange(len(level.count)))
    before = list(map(tuple, symbols.tolist()))
    assert before == sorted(before)
    found = dict(zip(map(tuple, (symbols - 1).tolist()), level.count.tolist(), strict=True))
    assert len(found) == len(level.count)
    return found


def agree(counts: Counts, expected: Sequence[Windows], min_count: int) -> None:
    """Compare every n-gram with the twin's, from order 1 on."""
    assert len(counts.levels) == len(expected)
    for order, windows in enumerate(expected, 1):
        assert spelled(counts, order) == {ngram: n for ngram, n in windows.items() if n >= min_count}, order
    assert counts.total == expected[0].total()
