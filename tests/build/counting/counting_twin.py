"""The slow, readable twin of the counting stage: one `collections.Counter` over all windows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from spectool.artifacts.counts import Counts
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


def counted(counts: Counts, order: int) -> dict[tuple[Any, ...], int]:
    """Return what the artifact holds of an order, in the twin's form, and check that it is sorted."""
    uses = counts.level(order).count
    symbols = counts.spelled(order, np.arange(len(uses)))
    before = list(map(tuple, symbols.tolist()))
    assert before == sorted(before)
    rows = (symbols.T - 1).tolist()
    found = dict(zip(zip(*rows, strict=True), uses.tolist(), strict=True))
    assert len(found) == len(uses)
    return found


def agree(counts: Counts, expected: Sequence[Windows]) -> None:
    """Compare every n-gram and every figure of the manifest with the twin's, from order 1 on."""
    minimum = counts.min_count
    for order, windows in enumerate(expected, 1):
        assert counted(counts, order) == {ngram: n for ngram, n in windows.items() if n >= minimum}, order
        figures = counts.manifest.statistics["orders"][str(order)]
        assert figures == {"kept": sum(n >= minimum for n in windows.values())}
    assert counts.total == expected[0].total()
