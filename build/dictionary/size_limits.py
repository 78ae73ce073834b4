"""Fitting a dictionary into limits: how many of the best entries its files have room for is found by trial."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from spectool.artifacts.dictionary import Entry, write_dictionary
from spectool.build.corpus_reading import Progress
from spectool.build.dictionary.options import Limits

_ANY_NUMBER = 1 << 40
_BYTES_PER_ENTRY = 6.8  # first guess; then what the files turn out to take
_AIM, _ENOUGH = 0.985, 0.97  # of the bytes allowed: what the next trial is to take, and what ends the trials
_TRIALS = 8


def write_within(
    directory: Path, limits: Limits, best_entries: Callable[[int], list[Entry]], progress: Progress
) -> dict[str, Any] | None:
    """Write the data files of a dictionary with the best entries that the limits allow.

    Args:
        directory: Where to write.
        limits: The maximum size.
        best_entries: Gives the best entries, at most as many as its argument.
        progress: Called at the start of each step with a short description.

    Returns:
        The statistics of `write_dictionary`; None if there is no entry, or no room for one.
    """
    limit, asked = limits.max_bytes, limits.entries or _ANY_NUMBER
    most = asked if limit is None else min(asked, int(limit / _BYTES_PER_ENTRY))
    before = 0, 0  # entries and bytes of the trial before
    for trial in range(_TRIALS):
        again = f" again: about {most:,} come to {limit:,} bytes" if trial else ""
        progress(f"choosing entries{again}")
        entries = best_entries(most)
        if not entries:
            break
        progress(f"writing {len(entries):,} entries")
        shape = write_dictionary(directory, entries)
        size = sum(file.stat().st_size for file in directory.iterdir())
        all_of_them = len(entries) < _AIM * most or most == asked
        if limit is None or (size <= limit and (all_of_them or size >= _ENOUGH * limit or trial > 1)):
            return shape
        more_entries, more_bytes = len(entries) - before[0], size - before[1]
        each = more_bytes / more_entries if more_entries * more_bytes > 0 else size / len(entries)
        most = max(1, min(asked, int(len(entries) + (_AIM * limit - size) / each)))
        before = len(entries), size
    return None
