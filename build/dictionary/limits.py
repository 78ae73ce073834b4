"""Writing as many entries as limits allow; how many bytes an entry takes is known only when it is written."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from spectool.artifacts.formats.dictionary import Entry, write_dictionary
from spectool.build.inputs import Progress

Chosen = TypeVar("Chosen")
_ANY_NUMBER = 1 << 40
_BYTES_PER_ENTRY = 6.8  # first guess; then what the files turn out to take
_AIM, _ENOUGH = 0.985, 0.97  # of the bytes allowed: what the next trial is to take, and what ends the trials
_TRIALS = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a dictionary may be."""

    entries: int | None = None  # most entries; None for any number
    max_bytes: int | None = None  # most bytes of the data files; None for any number


def write_within(
    directory: Path,
    limits: Limits,
    choose: Callable[[int], tuple[Chosen, list[Entry]]],
    chained: bool,
    progress: Progress,
) -> tuple[Chosen, dict[str, Any]] | None:
    """Write the data files of a dictionary with the best entries that the limits allow.

    Args:
        directory: Scratch directory of `replacing.writing`.
        limits: Of the dictionary.
        choose: Returns the best entries, at most so many, and what they were chosen as.
        chained: As for `write_dictionary`.
        progress: Called with a phrase when a step begins.

    Returns:
        What was chosen, and the statistics of `write_dictionary`; None where there is no entry, or no room for one.
    """
    limit, asked = limits.max_bytes, limits.entries or _ANY_NUMBER
    most = asked if limit is None else min(asked, int(limit / _BYTES_PER_ENTRY))
    before = 0, 0  # entries and bytes of the trial before
    for trial in range(_TRIALS):
        again = f" again: about {most:,} come to {limit:,} bytes" if trial else ""
        progress(f"choosing entries{again}")
        chosen, entries = choose(most)
        if not entries:
            break
        progress(f"writing {len(entries):,} entries")
        shape = write_dictionary(directory, entries, chained)
        size = sum(file.stat().st_size for file in directory.iterdir())
        all_of_them = len(entries) < _AIM * most or most == asked
        if limit is None or (size <= limit and (all_of_them or size >= _ENOUGH * limit or trial > 1)):
            return chosen, shape
        more_entries, more_bytes = len(entries) - before[0], size - before[1]
        each = more_bytes / more_entries if more_entries * more_bytes > 0 else size / len(entries)
        most = max(1, min(asked, int(len(entries) + (_AIM * limit - size) / each)))
        before = len(entries), size
    return None
