"""Which n-grams a pack keeps: those by which the text gets shorter, if it is coded by the counts.

An n-gram of a context c and a piece w that occurs n times saves n log2(P(w | c) / P(w | c')) bits, where c' is the
context without its oldest piece and P is smoothed as for dictionaries. A piece itself saves the bits of its letters.
The n-grams that it begins and ends with are kept as well.
"""

import numpy as np

from spectool.build.dictionary.options import BackoffOptions
from spectool.build.dictionary.smoothing import open_windows, smooth
from spectool.build.packs.pieces import PieceCounts, keep_rows

_LETTER_BITS = 1.0  # that a piece saves for each of its characters


class Candidates:
    """N-grams, from which those that save most are chosen."""

    def __init__(self, found: PieceCounts) -> None:
        self._found = found
        windows = open_windows(found.counts)
        smoothed = smooth(windows, BackoffOptions.discount)
        lengths = np.array([0, *map(len, found.pieces)])
        self._suffix = [window.suffix for window in windows]
        saved = [windows[0].count * lengths[windows[0].symbol] * _LETTER_BITS]
        for window, shorter, longer in zip(windows[1:], smoothed, smoothed[1:], strict=False):
            ratio = longer.probability / np.maximum(shorter.probability[window.suffix], 1e-30)
            saved.append(window.count * np.log2(np.maximum(ratio, 1e-30)))
        self._saved = np.concatenate(saved)
        self._ranking = np.argsort(-self._saved, kind="stable")  # of equals, the first ones

    def __len__(self) -> int:
        return int(np.count_nonzero(self._saved > 0))

    def best(self, most: int) -> PieceCounts:
        """About ``most`` n-grams, those that save most and what they begin and end with."""
        best = np.zeros(len(self._saved), dtype=np.bool_)
        best[self._ranking[:most]] = True
        kept = np.split(best & (self._saved > 0), np.cumsum([len(suffix) for suffix in self._suffix])[:-1])
        for order in range(len(kept) - 1, 0, -1):
            kept[order - 1][self._found.counts.levels[order].prefix[kept[order]]] = True
            kept[order - 1][self._suffix[order][kept[order]]] = True
        return keep_rows(self._found, kept)
