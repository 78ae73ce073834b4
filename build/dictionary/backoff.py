"""The backoff method: contexts of up to N-1 tokens, each with its one most probable next token.

    ... ze względu | na      context (ze, względu) -> na, P = 0.81
        względu na | to      left out if the next shorter known context says the same, or nearly as well

docs/design.md says what an entry is expected to gain, from the probabilities p of its own token, q of the token that is
proposed without it, and s that is stated for that one. The entries that gain most are kept: one number, the least gain
that is kept, decides the size of the dictionary. An entry that gains less than half a token in all of the counted text
is not kept even if there is room, because such entries are chance, and cost as much on other text as they gain
(docs/results.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectool import SpectoolError
from spectool.artifacts.dictionary import PROBABILITY_STEP, Dictionary, dictionary_arrays
from spectool.artifacts.manifest import Manifest
from spectool.build.corpus_reading import Progress
from spectool.build.counting import Counts
from spectool.build.dictionary import BackoffOptions
from spectool.build.dictionary.size_limits import largest_within
from spectool.build.dictionary.smoothing import (
    Followers,
    RowNumbers,
    Windows,
    conditional_followers,
    open_windows,
    smooth,
)
from spectool.tokenization.tokenizer import Tokenizer

LEAST_GAIN = 0.5  # expected accepted tokens in the counted text
_TIES = 1e-5  # share by which the last contexts have to gain more than the first, so that some of equals are kept
_BYTES_AN_ENTRY = 4.4  # about
_FEWEST_BYTES = 2.0  # of an entry: more than fit with these are not packed to see that they do not fit


class Predictions(NamedTuple):
    """What is proposed after each context of one length: by its own entry, or else by that of its longest kept suffix.

    Arrays are ``[contexts]`` each.
    """

    kept: NDArray[np.bool_]  # contexts with an entry of their own
    token: RowNumbers  # symbol that the entry proposes; -1 where there is none
    probability: NDArray[np.float32]  # of that token after the context itself
    conditional: NDArray[np.float32]  # the same at occurrences where no longer kept context is found
    stated: NDArray[np.float32]  # by the entry


_NEVER = np.zeros(1, np.float32)
_NO_ENTRY = Predictions(np.zeros(1, bool), np.full(1, -1), _NEVER, _NEVER, _NEVER)
"""What is proposed after the empty context."""


class CandidateEntries:
    """Contexts with their best tokens, from which entries are chosen."""

    def __init__(self, windows: Sequence[Windows], discount: float, symbols: int) -> None:
        """Find the most probable follower of every context.

        The windows are of order 1 to N, the discount is D of the smoothing, and ``symbols`` is the highest symbol.
        """
        self.windows, self._discount, self._base = windows, discount, symbols + 1
        self._smoothed = smooth(windows, discount)
        self._best = [self._best_followers(length) for length in range(1, len(windows))]
        self._conditional = self._conditional_on(self.entries_gaining(0.0, by_threshold=False))

    def entries_gaining(self, least: float, by_threshold: bool = True) -> list[Predictions]:
        """The predictions for contexts of 1, 2, ... N-1 tokens, if entries that gain more than ``least`` are kept.

        The gain is in expected accepted tokens in the counted text. Without ``by_threshold``, it is the gain if
        everything is drafted.
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
                gain = gain + (p_c**2 / 2 - q_c * stated + stated**2 / 2)  # the average over d
                new |= np.abs(p_c - stated) > PROBABILITY_STEP
            kept = (token >= 0) & new & (contexts.count * gain > least * np.linspace(1, 1 + _TIES, len(token)))
            chosen.append(
                Predictions(
                    kept,
                    np.where(kept, token, inherited.token),
                    np.where(kept, p, q),
                    np.where(kept, p_c, q_c),
                    np.where(kept, p_c, stated),
                )
            )
        return chosen

    def restated(self, chosen: Sequence[Predictions]) -> list[Predictions]:
        """The same entries, each stating the conditional probability of its token among exactly these entries."""
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
        """What the longest kept suffix of each context of ``length`` tokens proposes."""
        suffix = self.windows[length - 1].suffix
        return Predictions._make(column[suffix] for column in (shorter[-1] if shorter else _NO_ENTRY))

    def _best_followers(self, length: int) -> tuple[RowNumbers, RowNumbers]:
        """The most probable next symbol after each context, the lowest of equals, and the row of that window."""
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

    def _rows_of(self, length: int, token: RowNumbers) -> RowNumbers:
        """The row of the window of each context and a symbol after it, -1 where there is none."""
        rows = np.full(len(token), -1, dtype=np.int64)
        wanted = np.flatnonzero((token >= 0) & (self._best[length - 1][0] >= 0))
        rows[wanted] = self.windows[length].find(wanted * self._base + token[wanted])
        return rows


def _after(followers: Followers, rows: RowNumbers, shorter: NDArray[np.float32] | np.float32) -> NDArray[np.float32]:
    """The probability of a symbol after each context: that of its window, or else by that of a shorter context."""
    probability: NDArray[np.float32] = followers.left_over * shorter
    probability[rows >= 0] = followers.probability[rows[rows >= 0]]
    return probability


def number_of(chosen: Sequence[Predictions]) -> int:
    """Number of entries."""
    return sum(int(np.count_nonzero(predictions.kept)) for predictions in chosen)


def build_dictionary(
    tokenizer: Tokenizer,
    counts: Counts,
    inputs: Mapping[str, Any],
    out: Path,
    options: BackoffOptions,
    progress: Progress,
) -> Manifest:
    """Write the dictionary of counted windows of up to ``max_context + 1`` tokens, in one step.

    The manifest says ``inputs`` of what was counted.

    Raises:
        SpectoolError: There is nothing to build from.
    """
    progress("smoothing")
    windows = open_windows(counts)
    candidates = CandidateEntries(windows, options.discount, counts.symbols)

    def make(reach: float) -> tuple[float, tuple[dict[str, Any], dict[str, Any]] | None]:
        chosen = candidates.entries_gaining(1 / reach)
        number = number_of(chosen)
        if not number or number * _FEWEST_BYTES > options.max_bytes:
            return number * _BYTES_AN_ENTRY, None
        progress(f"packing {number:,} entries")
        arrays, shape = _arrays(counts, candidates.restated(chosen))
        return sum(values.nbytes for values in arrays.values()), (arrays, shape)

    progress("choosing entries")
    found = largest_within(options.max_bytes, 1 / LEAST_GAIN, 1 / LEAST_GAIN, make)
    if found is None:
        problem = f"from {counts.total:,} tokens. Give more text"
        if number_of(candidates.entries_gaining(LEAST_GAIN)):
            problem = f"fits in {options.max_bytes:,} bytes. Give a larger --max-bytes"
        elif not counts.total:
            problem = f"because {tokenizer.name} knows none of this text. Give another text or tokenizer"
        raise SpectoolError(f"{out}: no entry to store {problem}")
    arrays, shape = found
    return Dictionary.write(
        out,
        arrays,
        arguments={"method": "backoff", **asdict(options)},
        tokenizers={"target": tokenizer.identity},
        inputs=inputs,
        statistics={"tokens": counts.total, "contexts": sum(len(window.keys) for window in windows[:-1]), **shape},
    )


def _arrays(counts: Counts, chosen: Sequence[Predictions]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    contexts, following, stated = list[NDArray[Any]](), list[NDArray[Any]](), list[NDArray[Any]]()
    for length, predictions in enumerate(chosen, 1):
        rows = np.flatnonzero(predictions.kept)
        newest_first = counts.spelled(length, rows)[:, ::-1] - 1
        contexts.append(np.pad(newest_first, ((0, 0), (0, len(chosen) - length)), constant_values=-1))
        following.append(predictions.token[rows] - 1)
        stated.append(predictions.stated[rows])
    return dictionary_arrays(np.concatenate(contexts), np.concatenate(following), np.concatenate(stated))
