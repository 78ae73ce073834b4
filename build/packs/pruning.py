"""Which n-grams a pack keeps: those by which the text gets shorter, if it is coded by the counts.

An n-gram of a context c and a piece w that occurs n times saves n log2(P(w | c) / P(w | c')) bits, where c' is the
context without its oldest piece and P is smoothed as for dictionaries. A piece itself saves a bit for each character.
The n-grams that it begins and ends with are kept as well.
"""

import numpy as np

from spectool.build.dictionary import BackoffOptions
from spectool.build.dictionary.smoothing import open_windows, smooth
from spectool.build.packs.pieces import PieceCounts, keep_rows


class Candidates:
    """N-grams, from which those that save most are chosen."""

    def __init__(self, found: PieceCounts) -> None:
        self._found, self._windows = found, (windows := open_windows(found.counts))
        smoothed = smooth(windows, BackoffOptions.discount)
        lengths = np.array([0, *map(len, found.pieces)])
        saved = [windows[0].count * lengths[windows[0].symbol]]
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
        kept = np.split(best & (self._saved > 0), np.cumsum([len(window.keys) for window in self._windows])[:-1])
        for order in range(len(kept) - 1, 0, -1):
            window = self._windows[order]
            kept[order - 1][window.prefix[kept[order]]] = True
            kept[order - 1][window.suffix[kept[order]]] = True
        return keep_rows(self._found, kept)
