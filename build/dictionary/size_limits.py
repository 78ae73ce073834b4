"""Fitting a dictionary or a pack into a size: how much of the best there is room for is found by trial."""

from collections.abc import Callable
from math import inf
from typing import TypeVar

Made = TypeVar("Made")
_AIM, _ENOUGH = 0.985, 0.97  # of the bytes allowed: what the next trial is to take, and what ends the trials
_TRIALS = 60  # about four are enough, but many entries may be as good as each other
_CLOSEST = 1e-9  # share by which two trials differ at least


def largest_within(
    limit: int, first: float, most: float, make: Callable[[float], tuple[float, Made | None]]
) -> Made | None:
    """What is made of about the largest number, up to ``most``, for which it has at most ``limit`` bytes.

    ``make`` gives the bytes for a number, which grow with it about evenly, and what has them. The ``first`` number is a
    guess. None if nothing fits.
    """
    fitting: Made | None = None
    number, before = min(first, most), (0.0, 0.0)
    low, high = 0.0, inf  # the most that fits so far, and the least that does not
    for trial in range(1, _TRIALS + 1):
        size, made = make(number)
        if size <= limit:
            fitting, low = made, number
            if number >= most or size >= _ENOUGH * limit:
                break
        else:
            high = number
        slope = (size - before[1]) / (number - before[0])
        before = number, size
        guess = number + (_AIM * limit - size) / slope if slope > 0 else inf
        if high == inf:
            number = min(guess, most)
        elif high - low < _CLOSEST * high:
            break
        else:
            number = guess if low < guess < high and trial % 6 < 4 else (low + high) / 2
    return fitting
