"""Fitting a dictionary or a pack into a size: how many of the best rows there is room for is found by trial."""

from collections.abc import Callable
from typing import Any, TypeAlias

from spectool.build.corpus_reading import Progress

_ALL = 1 << 40  # rows
_AIM, _ENOUGH = 0.985, 0.97  # of the bytes allowed: what the next trial is to take, and what ends the trials
_TRIALS = 8
_LEAST = 0.01  # bytes that one more row is taken to need

Chosen: TypeAlias = tuple[int, dict[str, Any], dict[str, Any]]
"""The number of rows that were chosen, their arrays, and what a manifest says of them."""


def arrays_within(
    limit: int | None, first_guess: float, choose: Callable[[int], Chosen], progress: Progress
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The arrays of the best rows that there is room for, and what a manifest says of them; None if not one fits.

    All arrays together have at most ``limit`` bytes, None for any. A row takes ``first_guess`` bytes at first, and then
    what it has turned out to take. ``choose`` gives as many of the best rows as its argument says, or all, and what
    belongs to them.
    """
    most = _ALL if limit is None else int(limit / first_guess)
    # Rows and bytes: the most that fit so far, the trial before that, and the fewest that do not fit, if any.
    low, before, high = (0, 0), (0, 0), (0, 0)
    fitting: tuple[dict[str, Any], dict[str, Any]] | None = None
    for trial in range(_TRIALS):
        progress("choosing entries" + (f" again: about {most:,} come to {limit:,} bytes" if trial else ""))
        rows, arrays, shape = choose(most)
        if not rows:
            break
        size = sum(values.nbytes for values in arrays.values())
        if limit is None or size <= limit:
            fitting, before, low = (arrays, shape), low, (min(rows, most), size)
            if limit is None or rows < _AIM * most or size >= _ENOUGH * limit:
                break
        else:
            high = min(rows, most), size
        begin, end = (low, high) if high[0] else (before, low)
        each = max(_LEAST, (end[1] - begin[1]) / max(1, end[0] - begin[0]))
        most = max(low[0] + 1, int(begin[0] + (_AIM * limit - begin[1]) / each))
        if not low[0]:  # some bytes may be there without any row
            most = min(most, max(1, high[0] // 2))
        if high[0] and most >= high[0]:
            break
    return fitting
