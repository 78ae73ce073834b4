"""Fitting a dictionary into a size: how many of the best entries there is room for is found by trial."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.dictionary import Entry, dictionary_arrays
from spectool.build.corpus_reading import Progress

_ALL = 1 << 40  # entries
_BYTES_PER_ENTRY = 5.8  # first guess; then what the arrays turn out to take
_AIM, _ENOUGH = 0.985, 0.97  # of the bytes allowed: what the next trial is to take, and what ends the trials
_TRIALS = 8


def arrays_within(
    limit: int | None, best_entries: Callable[[int], list[Entry]], progress: Progress
) -> tuple[dict[str, NDArray[np.generic]], dict[str, Any]] | None:
    """The arrays of a dictionary with the best entries that there is room for.

    Args:
        limit: The maximum size of all arrays in bytes, None for any.
        best_entries: Gives the best entries, at most as many as its argument.
        progress: Called at the start of each step with a short description.

    Returns:
        What `dictionary_arrays` returns; None if there is no entry, or no room for one.
    """
    most = _ALL if limit is None else int(limit / _BYTES_PER_ENTRY)
    before = 0, 0  # entries and bytes of the trial before
    for trial in range(_TRIALS):
        again = f" again: about {most:,} come to {limit:,} bytes" if trial else ""
        progress(f"choosing entries{again}")
        entries = best_entries(most)
        if not entries:
            break
        progress(f"packing {len(entries):,} entries")
        arrays, shape = dictionary_arrays(entries)
        size = sum(values.nbytes for values in arrays.values())
        all_of_them = len(entries) < _AIM * most
        if limit is None or (size <= limit and (all_of_them or size >= _ENOUGH * limit or trial > 1)):
            return arrays, shape
        more_entries, more_bytes = len(entries) - before[0], size - before[1]
        each = more_bytes / more_entries if more_entries * more_bytes > 0 else size / len(entries)
        most = max(1, int(len(entries) + (_AIM * limit - size) / each))
        before = len(entries), size
    return None
