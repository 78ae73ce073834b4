"""Fitting a dictionary or a pack into a size: how many of the best rows there is room for is found by trial."""

from collections.abc import Callable
from typing import Any, TypeAlias

from spectool.build.corpus_reading import Progress

_ALL = 1 << 40  # rows
_AIM, _ENOUGH = 0.985, 0.97  # of the bytes allowed: what the next trial is to take, and what ends the trials
_TRIALS = 8

Chosen: TypeAlias = tuple[int, dict[str, Any], dict[str, Any]]
"""The number of rows that were chosen, their arrays, and what a manifest says of them."""


def arrays_within(
    limit: int | None, first_guess: float, choose: Callable[[int], Chosen], progress: Progress
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The arrays of the best rows that there is room for, and what a manifest says of them; None if not one fits.

    All arrays together have at most ``limit`` bytes, None for any. A row takes ``first_guess`` bytes at first, and then
    what it has turned out to take. ``choose`` gives the best rows, about as many as its argument at most.
    """
    most = _ALL if limit is None else int(limit / first_guess)
    before = 0, 0  # rows and bytes of the trial before
    for trial in range(_TRIALS):
        progress("choosing entries" + (f" again: about {most:,} come to {limit:,} bytes" if trial else ""))
        rows, arrays, shape = choose(most)
        if not rows:
            break
        size = sum(values.nbytes for values in arrays.values())
        all_of_them = rows < _AIM * most
        if limit is None or (size <= limit and (all_of_them or size >= _ENOUGH * limit or trial > 1)):
            return arrays, shape
        more_rows, more_bytes = rows - before[0], size - before[1]
        each = more_bytes / more_rows if more_rows * more_bytes > 0 else size / rows
        most = max(1, int(rows + (_AIM * limit - size) / each))
        before = rows, size
    return None
