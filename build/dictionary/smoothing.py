"""Interpolated Kneser-Ney smoothing of counted token windows.

    P(t | c) = max(C(c t) - D, 0) / C(c) + L(c) P(t | c'),    c' = c without its oldest token

In the longest windows C counts occurrences. In shorter ones it counts the different tokens seen before the window,
because P(t | c') is needed only where the longer context was not seen. There a token that follows c' after many
different tokens is a better guess than one that is frequent in a single phrase. L(c) is what the discounts and the
windows below the minimum count leave over, so that the probabilities after a context add up to one.

Once entries are chosen, C can be counted where it matters. A look-up finds a context only at those of its occurrences
where no longer context is kept. Counting there ranks tokens no better, but it tells how probable the best of them is.

Source: Kneser and Ney 1995, in the interpolated form of Chen and Goodman 1999, section 2.7.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.pack import Order
from spectool.build.counting import Counts

RowNumbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Windows(Order):
    """The counted windows of one order, in the rows of the counts."""

    keys: RowNumbers  # ``prefix * symbols + symbol``, ascending, ``[rows]``

    def find(self, keys: RowNumbers) -> RowNumbers:
        """The row of each key, -1 where there is no such window."""
        if not len(self.keys):
            return np.full(len(keys), -1, dtype=np.int64)
        rows = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[rows] == keys, rows, -1)


@dataclass(frozen=True, slots=True)
class Followers:
    """Smoothed probabilities of what follows the contexts of one length."""

    probability: NDArray[np.float32]  # of the last token of each window given those before it, ``[windows]``
    left_over: NDArray[np.float32]  # L of each context, ``[contexts]``


def open_windows(counts: Counts) -> list[Windows]:
    """The windows of order 1, 2, ... with their suffixes, which occur at least as often and so are counted, too."""
    base = counts.symbols + 1
    windows: list[Windows] = []
    for level in counts.levels:
        keys = level.prefix.astype(np.int64) * base + level.symbol
        suffix = np.zeros(len(keys), dtype=np.int64)
        if windows:
            # Looked up in ascending order, because neighbours in the file are neighbours in the cache.
            wanted = windows[-1].suffix[level.prefix] * base + level.symbol
            ascending = np.argsort(wanted)
            suffix[ascending] = windows[-1].find(wanted[ascending])
        windows.append(Windows(level.prefix, level.symbol, level.count, suffix, keys))
    return windows


def smooth(windows: Sequence[Windows], discount: float) -> list[Followers]:
    """Smooth all orders, 1 to N, as Kneser and Ney do, with the discount D, 0 to 1.

    Returns:
        Followers of the contexts of 0, 1, ... N-1 tokens; element n is about windows of order n+1.
    """
    evidence: list[NDArray[np.float64]] = []
    for window, longer in pairwise(windows):
        # The number of different tokens before the window. Longer windows below the minimum count are not known: each
        # of their occurrences is taken for another token, which is exact for a minimum count of 2.
        evidence.append(np.maximum(window.count - _by_suffix(longer, longer.count - 1, window), 1))
    evidence.append(windows[-1].count.astype(np.float64))
    whole = []
    for order, (below, window) in enumerate(pairwise(windows), 1):
        contexts = len(below.keys)
        known = np.bincount(window.prefix, weights=window.count, minlength=contexts) / below.count
        total = np.bincount(window.prefix, weights=evidence[order], minlength=contexts)
        # Followers below the minimum count are part of the whole, in proportion to the occurrences known.
        whole.append(np.divide(total, known, out=np.ones(contexts), where=known > 0))
    return _interpolate(windows, evidence, whole, discount)


def conditional_followers(
    windows: Sequence[Windows], kept: Sequence[NDArray[np.bool_]], discount: float
) -> list[Followers]:
    """Followers as of `smooth`, but of each context only at its occurrences where no longer context is kept.

    ``kept`` says which contexts of 1, 2, ... N-1 tokens are kept, ``[contexts]`` each.
    """
    after = [np.zeros(len(windows[0].keys), dtype=np.bool_)]  # is the window's context, all but its last token, kept?
    after += [contexts[window.prefix] for contexts, window in zip(kept, windows[1:], strict=True)]
    return _interpolate(windows, _not_taken(windows, after), _not_taken(windows[:-1], kept), discount)


def _interpolate(
    windows: Sequence[Windows],
    evidence: Sequence[NDArray[np.float64]],
    whole: Sequence[NDArray[np.float64]],
    discount: float,
) -> list[Followers]:
    """The followers of all contexts, from any kind of count.

    ``evidence`` is C(c t) of each window, for each order; ``whole`` is C(c) of each window as a context, for each order
    but the last.
    """
    first = (evidence[0] / max(1.0, evidence[0].sum())).astype(np.float32)
    smoothed = [Followers(first, np.zeros(1, dtype=np.float32))]
    for window, seen, total in zip(windows[1:], evidence[1:], whole, strict=True):
        share = np.maximum(seen - discount, 0) / np.maximum(total, 1)[window.prefix]
        left_over = np.clip(1 - np.bincount(window.prefix, weights=share, minlength=len(total)), 0, 1)
        # Counts that were filtered can have more of a window than of its context.
        probability = np.minimum(share + left_over[window.prefix] * smoothed[-1].probability[window.suffix], 1)
        smoothed.append(Followers(probability.astype(np.float32), left_over.astype(np.float32)))
    return smoothed


def _not_taken(windows: Sequence[Windows], kept: Sequence[NDArray[np.bool_]]) -> list[NDArray[np.float64]]:
    """For each order, the occurrences of every window that are in no longer window that is kept."""
    taken: NDArray[np.float64] = np.zeros(len(windows[-1].keys))
    left: list[NDArray[np.float64]] = [windows[-1].count - taken]
    for order in range(len(windows) - 1, 0, -1):
        longer, window = windows[order], windows[order - 1]
        taken = _by_suffix(longer, np.where(kept[order], longer.count, taken), window)
        left.append(np.maximum(window.count - taken, 0))
    return left[::-1]


def _by_suffix(longer: Windows, values: NDArray[Any], window: Windows) -> NDArray[np.float64]:
    """For each window, the sum of the values of the longer windows that end with it."""
    return np.bincount(longer.suffix, weights=values, minlength=len(window.keys)).astype(np.float64)
