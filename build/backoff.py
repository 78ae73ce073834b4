"""The backoff method: contexts of up to N-1 tokens, each with its one most probable next token.

    ... ze względu | na      context (ze, względu) -> na, P = 0.81
        względu na | to      where the longest known suffix of the history says the same as a
                             shorter one would, or hardly better, it is left out

An entry is worth what it adds to the drafts: occurrences of its context, times the probability of
its token less that of the token proposed without it. Entries are kept from the most worth on, so
that one number, the least worth that is kept, sets the size of the dictionary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from spectool.build.smoothing import Followers, Rows, Windows

_STEPS = 14  # halvings of the range of the least worth
_ENOUGH = 0.995  # of the entries allowed


@dataclass(frozen=True, slots=True)
class Predictions:
    """What is proposed after each context of one length.

    Attributes:
        kept: Contexts with an entry of their own, ``[contexts]``.
        token: Symbol proposed after each context, by its own entry or that of its longest kept
            suffix; -1 where there is none. ``[contexts]``
        probability: Of that token after the context itself, ``[contexts]``, float32.
        stated: What the entry that proposes it says of it, ``[contexts]``, float32.
        length: Tokens in the context of that entry, 0 where there is none, ``[contexts]``.
        count: Occurrences of that entry's context, ``[contexts]``.
    """

    kept: NDArray[np.bool_]
    token: Rows
    probability: NDArray[np.float32]
    stated: NDArray[np.float32]
    length: NDArray[np.int8]
    count: Rows


class Automaton:
    """Contexts with their best tokens, from which entries are chosen."""

    def __init__(self, windows: Sequence[Windows], smoothed: Sequence[Followers], symbols: int) -> None:
        """Find the most probable follower of every context.

        Args:
            windows: Orders 1 to N.
            smoothed: `smooth` of these.
            symbols: Highest symbol.
        """
        self.windows, self._smoothed, self._base = windows, smoothed, symbols + 1
        self._best = [self._best_followers(length) for length in range(1, len(windows))]

    def entries_worth(self, least: float) -> list[Predictions]:
        """Choose the entries worth more than ``least`` expected accepted tokens in the counted text.

        Returns:
            Predictions for the contexts of 1, 2, ... N-1 tokens.
        """
        chosen: list[Predictions] = []
        for length, (token, probability) in enumerate(self._best, 1):
            contexts = self.windows[length - 1]
            inherited = self._inherited(contexts, chosen[-1] if chosen else None)
            fallback = self._probability_of(length, inherited.token, inherited.probability)
            worth = contexts.count * (probability - fallback)
            kept = (token >= 0) & (token != inherited.token) & (worth > least)
            chosen.append(
                Predictions(
                    kept,
                    np.where(kept, token, inherited.token),
                    np.where(kept, probability, fallback),
                    np.where(kept, probability, inherited.stated),
                    np.where(kept, length, inherited.length).astype(np.int8),
                    np.where(kept, contexts.count, inherited.count),
                )
            )
        return chosen

    def best_entries(self, most: int) -> list[Predictions]:
        """Choose at most ``most`` entries, those worth most."""
        chosen = self.entries_worth(0.0)
        if number_of(chosen) <= most:
            return chosen
        low, high = 0.0, 1.0
        while number_of(self.entries_worth(high)) > most:
            low, high = high, high * 4
        for _ in range(_STEPS):
            middle = (low + high) / 2
            chosen = self.entries_worth(middle)
            if number_of(chosen) > most:
                low = middle
            elif number_of(chosen) >= _ENOUGH * most:
                return chosen
            else:
                high = middle
        return self.entries_worth(high)

    def _inherited(self, contexts: Windows, shorter: Predictions | None) -> Predictions:
        """Return what is proposed after each context by its longest kept suffix."""
        if shorter is not None:
            return Predictions(*(getattr(shorter, field.name)[contexts.suffix] for field in fields(Predictions)))
        nothing = np.zeros(len(contexts.keys), dtype=np.float32)
        rows = np.zeros(len(contexts.keys), dtype=np.int64)
        return Predictions(nothing > 0, rows - 1, nothing, nothing, rows.astype(np.int8), rows)

    def _best_followers(self, length: int) -> tuple[Rows, NDArray[np.float32]]:
        """Return the most probable next symbol after each context, the lowest of equals, and its probability."""
        window, probability = self.windows[length], self._smoothed[length].probability
        contexts = len(self.windows[length - 1].keys)
        token, highest = np.full(contexts, -1, dtype=np.int64), np.zeros(contexts, dtype=np.float32)
        if not len(window.keys):
            return token, highest
        starts = np.flatnonzero(np.diff(window.prefix, prepend=-1))
        top = np.maximum.reduceat(probability, starts)
        rows = np.flatnonzero(probability == np.repeat(top, np.diff(starts, append=len(probability))))
        rows = rows[np.diff(window.prefix[rows], prepend=-1) > 0]
        token[window.prefix[rows]], highest[window.prefix[rows]] = window.symbol[rows], probability[rows]
        return token, highest

    def _probability_of(self, length: int, token: Rows, shorter: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the probability of one symbol after each context, given the one after its suffix."""
        smoothed = self._smoothed[length]
        wanted = np.flatnonzero((token >= 0) & (self._best[length - 1][0] >= 0))
        rows = self.windows[length].find(wanted * self._base + token[wanted])
        probability = smoothed.left_over * shorter
        probability[wanted[rows >= 0]] = smoothed.probability[rows[rows >= 0]]
        return probability


def number_of(chosen: Sequence[Predictions]) -> int:
    """Return the number of entries."""
    return sum(int(np.count_nonzero(predictions.kept)) for predictions in chosen)
