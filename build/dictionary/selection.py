"""Which entries of a dictionary are kept, when it is made from another one: merged, restricted, imported.

An entry is redundant when the longest kept suffix of its context proposes the same with the same probability. Of the
others, those that gain most are kept. The gain is occurrences of the context, times what the entry adds to the drafts
there, as in `backoff`.

Let f be the suffix's proposal, and q its probability after the context c itself. No dictionary has q, unless c proposes
f as well. Otherwise let c propose t with probability p. Then q is taken for (1 - p) P(f | suffix): what t leaves over,
shared out as after the suffix. It is no more than p / 2, since t was chosen because f is less probable.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from itertools import compress, count, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from spectool import SpectoolError
from spectool.artifacts.atomic import writing
from spectool.artifacts.dictionary import FORMAT, PROBABILITY_STEP, VERSION, Entry, write_dictionary
from spectool.artifacts.manifest import Manifest, seal
from spectool.build.dictionary.backoff import gain_over_thresholds
from spectool.build.dictionary.options import Limits
from spectool.build.inputs import Progress

Found = TypeVar("Found")
Text = str
"""Tokens as a string, one code point per id: strings are hashed and sliced several times faster than tuples."""


class Prediction(NamedTuple):
    """What follows a context."""

    continuation: tuple[int, ...]  # tokens proposed
    probability: float  # of the whole continuation, 0..1
    occurrences: float  # of the context in the text


Table = dict[Text, Prediction]
"""Context -> what follows it."""


def as_text(tokens: Iterable[int]) -> Text:
    """Write tokens as a string."""
    return "".join(map(chr, tokens))


def as_tokens(text: Text) -> tuple[int, ...]:
    """Read tokens from a string."""
    return tuple(map(ord, text))


def longest_suffix(context: Text, known: Mapping[Text, Found]) -> Found | None:
    """Return what is known of the longest known proper suffix of a context."""
    suffixes = (context[start:] for start in range(1, len(context)))
    return next((known[suffix] for suffix in suffixes if suffix in known), None)


class Choice:
    """All entries that there could be, from which those of a dictionary are chosen."""

    def __init__(self, predictions: Table) -> None:
        """Find the longest suffix of every context, once for all choices."""
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
        speaks = np.full(len(self._contexts), -1, dtype=np.int64)  # row of the entry that is found for a context
        kept = np.zeros(len(self._contexts), dtype=np.bool_)
        gain = np.zeros(len(self._contexts))
        for start, end in pairwise(self._bounds):
            own = np.arange(start, end)
            parent = self._parent[start:end]
            fallback = np.where(parent >= 0, speaks[parent], -1)
            p = self._probability[own]
            known, same = fallback >= 0, (fallback >= 0) & (self._proposed[fallback] == self._proposed[own])
            stated = np.where(known, self._probability[fallback], 0.0)
            q = np.where(same, p, np.minimum((1 - p) * stated, p / 2))
            gain[own] = self._occurrences[own] * (p - q + gain_over_thresholds(p, q, stated))
            kept[own] = ~(same & (np.abs(p - stated) <= PROBABILITY_STEP)) & (gain[own] >= least)
            speaks[own] = np.where(kept[own], own, fallback)
        return kept, gain

    def best(self, most: int) -> Table:
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


def write_best(
    out: Path,
    predictions: Table,
    chained: bool,
    limits: Limits,
    progress: Progress,
    facts: Mapping[str, Any],
) -> Manifest:
    """Choose entries within limits from all that there could be, and write the dictionary in one step.

    ``chained`` is as for `write_dictionary`. The facts are arguments, tokenizers and inputs for the manifest, and
    statistics of what came before.

    Raises:
        SpectoolError: There is no entry, or no room for one.
    """
    if not predictions:
        raise SpectoolError("no entry is left to write. Give other dictionaries, or wider limits")
    choice = Choice(predictions)
    with writing(out) as directory:

        def choose(most: int) -> list[Entry]:
            return [
                Entry(as_tokens(context), p.continuation, p.probability, max(1, round(p.occurrences)))
                for context, p in choice.best(most).items()
            ]

        shape = write_within(directory, limits, choose, chained, progress)
        if shape is None:
            raise SpectoolError(
                f"a dictionary of {limits.max_bytes:,} bytes has no room for entries. Give a larger limit"
            )
        arguments = {**facts["arguments"], **asdict(limits)}
        statistics = {**facts.get("statistics", {}), "entries_before_pruning": len(predictions), **shape}
        return seal(directory, Manifest(FORMAT, VERSION, arguments, facts["tokenizers"], facts["inputs"], statistics))


_ANY_NUMBER = 1 << 40
_BYTES_PER_ENTRY = 6.8  # first guess; then what the files turn out to take
_AIM, _ENOUGH = 0.985, 0.97  # of the bytes allowed: what the next trial is to take, and what ends the trials
_TRIALS = 8


def write_within(
    directory: Path, limits: Limits, choose: Callable[[int], list[Entry]], chained: bool, progress: Progress
) -> dict[str, Any] | None:
    """Write the data files of a dictionary with the best entries that the limits allow.

    Directory and ``chained`` are as for `write_dictionary`. ``choose`` returns the best entries, at most so many. Those
    that it returned last are the ones that are written.

    Returns:
        The statistics of `write_dictionary`; None where there is no entry, or no room for one.
    """
    limit, asked = limits.max_bytes, limits.entries or _ANY_NUMBER
    most = asked if limit is None else min(asked, int(limit / _BYTES_PER_ENTRY))
    before = 0, 0  # entries and bytes of the trial before
    for trial in range(_TRIALS):
        again = f" again: about {most:,} come to {limit:,} bytes" if trial else ""
        progress(f"choosing entries{again}")
        entries = choose(most)
        if not entries:
            break
        progress(f"writing {len(entries):,} entries")
        shape = write_dictionary(directory, entries, chained)
        size = sum(file.stat().st_size for file in directory.iterdir())
        all_of_them = len(entries) < _AIM * most or most == asked
        if limit is None or (size <= limit and (all_of_them or size >= _ENOUGH * limit or trial > 1)):
            return shape
        more_entries, more_bytes = len(entries) - before[0], size - before[1]
        each = more_bytes / more_entries if more_entries * more_bytes > 0 else size / len(entries)
        most = max(1, min(asked, int(len(entries) + (_AIM * limit - size) / each)))
        before = len(entries), size
    return None
