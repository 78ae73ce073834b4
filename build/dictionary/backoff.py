"""The backoff method: contexts of up to N-1 tokens, each with its one most probable next token.

    ... ze względu | na      context (ze, względu) -> na, P = 0.81
        względu na | to      where the longest known suffix of the history says the same as a
                             shorter one would, or hardly better, it is left out

An entry gains what it adds to the drafts. Who drafts from a probability d on gains p - d by a guess that is right with
probability p >= d. Take a context c whose entry says p. Without it, a guess that is right with probability q would be
drafted as if s were its probability. The entry adds

    p - q                    to those who draft everything, d = 0
    p^2/2 - q s + s^2/2      to those who do not, averaged over d in 0..1

at each of its occurrences; the sum of both is its expected gain. So an entry may pay by saying the same token with
another probability. The entries that gain most are kept: one number, the least gain that is kept, sets the size of the
dictionary. Below half a token in all of the counted text none is kept, whatever room there is. Such entries are chance,
and cost as much on other text as they gain (docs/results.md).
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.dictionary import PROBABILITY_STEP
from spectool.build.dictionary.smoothing import Followers, Rows, Windows, conditional_followers, smooth

LEAST_GAIN = 0.5  # expected accepted tokens in the counted text
_FLATTEST = -0.05  # steps are bold where numbers hardly change, but not boundless
_STEPS = 40  # trials of the least gain; some five are enough
_ENOUGH = 0.995  # of the entries allowed

Values: TypeAlias = NDArray[np.floating[Any]]


class Predictions(NamedTuple):
    """What is proposed after each context of one length, ``[contexts]`` each.

    The entry that speaks for a context is its own, or that of its longest kept suffix.
    """

    kept: NDArray[np.bool_]  # contexts with an entry of their own
    token: Rows  # symbol that the entry proposes; -1 where there is none
    probability: NDArray[np.float32]  # of that token after the context itself
    conditional: NDArray[np.float32]  # the same where no longer kept context takes the occurrence
    stated: NDArray[np.float32]  # what the entry says of it
    length: NDArray[np.int8]  # tokens in the entry's context, 0 where there is none
    count: Rows  # type: ignore[assignment]  # occurrences of the entry's context


_NEVER = np.zeros(1, np.float32)
_NO_ENTRY = Predictions(
    np.zeros(1, bool), np.full(1, -1), _NEVER, _NEVER, _NEVER, np.zeros(1, np.int8), np.zeros(1, np.int64)
)
"""What is proposed after the empty context."""


class CandidateEntries:
    """Contexts with their best tokens, from which entries are chosen."""

    def __init__(self, windows: Sequence[Windows], discount: float, symbols: int) -> None:
        """Find the most probable follower of every context, and how probable it is.

        The windows are of order 1 to N, the discount is D of the smoothing, and the highest symbol is ``symbols``.
        """
        self.windows, self._discount, self._base = windows, discount, symbols + 1
        self._smoothed = smooth(windows, discount)
        self._best = [self._best_followers(length) for length in range(1, len(windows))]
        self._conditional = self._conditional_on(self.entries_gaining(0.0, by_threshold=False))

    def entries_gaining(self, least: float, by_threshold: bool = True) -> list[Predictions]:
        """Choose the entries that gain more than ``least``, in expected accepted tokens in the counted text.

        Without ``by_threshold``, it is the gain of those alone who draft everything.

        Returns:
            Predictions for the contexts of 1, 2, ... N-1 tokens.
        """
        chosen: list[Predictions] = []
        for length, (token, row) in enumerate(self._best, 1):
            contexts, inherited = self.windows[length - 1], self._inherited(length, chosen)
            other = self._rows_of(length, inherited.token)
            p = _after(self._smoothed[length], row, np.float32(0))
            q = _after(self._smoothed[length], other, inherited.probability)
            gain, new = p - q, token != inherited.token
            p_c, q_c, stated = p, q, inherited.stated
            if by_threshold:
                p_c = _after(self._conditional[length], row, np.float32(0))
                q_c = _after(self._conditional[length], other, inherited.conditional)
                gain = gain + gain_over_thresholds(p_c, q_c, stated)
                new |= np.abs(p_c - stated) > PROBABILITY_STEP
            kept = (token >= 0) & new & (contexts.count * gain > least)
            chosen.append(
                Predictions(
                    kept,
                    np.where(kept, token, inherited.token),
                    np.where(kept, p, q),
                    np.where(kept, p_c, q_c),
                    np.where(kept, p_c, stated),
                    np.where(kept, length, inherited.length).astype(np.int8),
                    np.where(kept, contexts.count, inherited.count),
                )
            )
        return chosen

    def best_entries(self, most: int) -> list[Predictions]:
        """Choose at most ``most`` entries, those that gain most."""
        chosen = self.entries_gaining(LEAST_GAIN)
        everything = number_of(chosen)
        if everything <= most:
            return chosen
        few: list[Predictions] | None = None
        low, high, slope = LEAST_GAIN, math.inf, -1.0  # of log number over log least: some -1 for most texts
        least, wanted = low * everything / max(1, most), most * (1 + _ENOUGH) / 2
        before: tuple[float, int] | None = None
        for _ in range(_STEPS):
            chosen = self.entries_gaining(least)
            number = number_of(chosen)
            if _ENOUGH * most <= number <= most:
                return chosen
            if number > most:
                low = least
            else:
                high, few = least, chosen
            if before and 0 < number != before[1] > 0:
                slope = min(_FLATTEST, math.log(number / before[1]) / math.log(least / before[0]))
            before = least, number
            guess = least * (max(1, number) / max(1.0, wanted)) ** (-1 / slope)
            least = guess if low < guess < high else (low + high) / 2
        return few or self.entries_gaining(math.inf)

    def restated(self, chosen: Sequence[Predictions]) -> list[Predictions]:
        """Let entries state the conditional probabilities of their tokens among exactly these entries."""
        followers = self._conditional_on(chosen)
        restated: list[Predictions] = []
        for length, predictions in enumerate(chosen, 1):
            own = predictions.kept
            stated = self._inherited(length, restated).stated
            stated[own] = followers[length].probability[self._rows_of(length, predictions.token)[own]]
            restated.append(predictions._replace(stated=stated))
        return restated

    def _conditional_on(self, chosen: Sequence[Predictions]) -> list[Followers]:
        return conditional_followers(self.windows, [predictions.kept for predictions in chosen], self._discount)

    def _inherited(self, length: int, shorter: Sequence[Predictions]) -> Predictions:
        """Return what is proposed after each context of ``length`` tokens by its longest kept suffix."""
        suffix = self.windows[length - 1].suffix
        return Predictions._make(column[suffix] for column in (shorter[-1] if shorter else _NO_ENTRY))

    def _best_followers(self, length: int) -> tuple[Rows, Rows]:
        """Return the most probable next symbol after each context, the lowest of equals, and the row of that window."""
        window, probability = self.windows[length], self._smoothed[length].probability
        contexts = len(self.windows[length - 1].keys)
        token, row = np.full(contexts, -1, dtype=np.int64), np.full(contexts, -1, dtype=np.int64)
        if not len(window.keys):
            return token, row
        starts = np.flatnonzero(np.diff(window.prefix, prepend=-1))
        top = np.maximum.reduceat(probability, starts)
        rows = np.flatnonzero(probability == np.repeat(top, np.diff(starts, append=len(probability))))
        rows = rows[np.diff(window.prefix[rows], prepend=-1) > 0]
        token[window.prefix[rows]], row[window.prefix[rows]] = window.symbol[rows], rows
        return token, row

    def _rows_of(self, length: int, token: Rows) -> Rows:
        """Return the row of the window of each context and one symbol after it, -1 where there is none."""
        rows = np.full(len(token), -1, dtype=np.int64)
        wanted = np.flatnonzero((token >= 0) & (self._best[length - 1][0] >= 0))
        rows[wanted] = self.windows[length].find(wanted * self._base + token[wanted])
        return rows


def gain_over_thresholds(p: Values, q: Values, stated: Values) -> Values:
    """Return what an entry adds to those who draft from some probability on, averaged over all that there are.

    Its token has the probability ``p``. Without it, a token of probability ``q`` is proposed and ``stated`` said of it.
    """
    gain: Values = p**2 / 2 - q * stated + stated**2 / 2
    return gain


def _after(followers: Followers, rows: Rows, shorter: NDArray[np.float32] | np.float32) -> NDArray[np.float32]:
    """Return the probability of one symbol after each context: that of its window, or by that of a shorter one."""
    probability: NDArray[np.float32] = followers.left_over * shorter
    probability[rows >= 0] = followers.probability[rows[rows >= 0]]
    return probability


def number_of(chosen: Sequence[Predictions]) -> int:
    """Return the number of entries."""
    return sum(int(np.count_nonzero(predictions.kept)) for predictions in chosen)
