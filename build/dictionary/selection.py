"""Which entries are kept when dictionaries are merged.

An entry is redundant when the longest kept suffix of its context proposes the same with the same probability. Of the
others, those that gain most are kept. The gain is the number of occurrences of the context, times what the entry adds
to the drafts there, as in `backoff`.

Let f be the suffix's proposal, and q its probability after the context c itself. No dictionary knows q, unless c
proposes f as well. Otherwise let c propose t with probability p. Then q is taken for (1 - p) P(f | suffix), which is
what t leaves over, shared out as after the suffix. It is no more than p / 2, because t was chosen over f.
"""

from collections import defaultdict
from itertools import compress, count, pairwise

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.dictionary import PROBABILITY_STEP
from spectool.build.dictionary.backoff import gain_over_thresholds
from spectool.build.dictionary.predictions import PredictionTable, longest_suffix


class Choice:
    """All possible entries, of which the best are chosen."""

    def __init__(self, predictions: PredictionTable) -> None:
        """Find the longest suffix of every context, once for all thresholds."""
        self._predictions = predictions
        self._contexts = sorted(predictions, key=lambda context: (len(context), context))
        rows = {context: row for row, context in enumerate(self._contexts)}
        values = [predictions[context] for context in self._contexts]
        parents = (longest_suffix(context, rows) for context in self._contexts)
        self._parent = np.array([-1 if parent is None else parent for parent in parents], dtype=np.int64)
        number = defaultdict[tuple[int, ...], int](count().__next__)
        self._proposed = np.array([number[p.continuation] for p in values], dtype=np.int64)
        self._probability = np.array([p.probability for p in values])
        self._occurrences = np.array([p.occurrences for p in values])
        lengths = np.array([len(context) for context in self._contexts])
        self._bounds = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(values)]

    def gaining_at_least(self, least: float) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Choose the entries that are not redundant and gain ``least`` or more.

        Returns:
            Which contexts keep their entries, short ones first, and the expected gain of each. ``[contexts]``
        """
        found_for = np.full(len(self._contexts), -1, dtype=np.int64)  # row of the entry that a look-up finds
        kept = np.zeros(len(self._contexts), dtype=np.bool_)
        gain = np.zeros(len(self._contexts))
        for start, end in pairwise(self._bounds):
            own = np.arange(start, end)
            parent = self._parent[start:end]
            fallback = np.where(parent >= 0, found_for[parent], -1)
            p = self._probability[own]
            known, same = fallback >= 0, (fallback >= 0) & (self._proposed[fallback] == self._proposed[own])
            stated = np.where(known, self._probability[fallback], 0.0)
            q = np.where(same, p, np.minimum((1 - p) * stated, p / 2))
            gain[own] = self._occurrences[own] * (p - q + gain_over_thresholds(p, q, stated))
            kept[own] = ~(same & (np.abs(p - stated) <= PROBABILITY_STEP)) & (gain[own] >= least)
            found_for[own] = np.where(kept[own], own, fallback)
        return kept, gain

    def best(self, most: int) -> PredictionTable:
        """Choose at most ``most`` entries, those that gain most; short contexts first."""
        kept, gain = self.gaining_at_least(0.0)
        if np.count_nonzero(kept) > most:
            # Without some entries others fall back further and gain more: the threshold is found by trial.
            thresholds = np.unique(gain[kept])
            low, high = 0, len(thresholds)  # the answer lies above low, and high keeps few enough
            kept = np.zeros_like(kept)
            while high - low > 1:
                middle = (low + high) // 2
                chosen, _ = self.gaining_at_least(float(thresholds[middle]))
                if np.count_nonzero(chosen) > most:
                    low = middle
                else:
                    high, kept = middle, chosen
        return {context: self._predictions[context] for context in compress(self._contexts, kept.tolist())}
