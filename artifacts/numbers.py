"""Whole numbers in few bytes: seven bits a byte, the lowest first; all but the last byte have the highest bit set.

Numbers that ascend within groups are smaller as gaps: how many are skipped since the one before, or since 0.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST_DIGITS = 5  # bytes of a number, which is below 2 ** 35


def to_digits(numbers: ArrayLike) -> bytes:
    """The bytes of numbers from 0 on."""
    rest = np.asarray(numbers, np.int64)[:, None] >> 7 * np.arange(MOST_DIGITS)
    used = rest > 0
    used[:, 0] = True
    digits = rest & 0x7F
    digits[:, :-1] |= 0x80 * used[:, 1:]
    return digits[used].astype(np.uint8).tobytes()


def from_digits(digits: NDArray[np.uint8], count: int) -> NDArray[np.int64]:
    """The ``count`` numbers that such bytes are, which may come from anyone; a ValueError if they are not."""
    ends = np.flatnonzero(digits < 0x80)
    if len(ends) != count or (len(digits) and digits[-1] >= 0x80):
        raise ValueError(f"{len(ends):,} numbers, expected {count:,}")
    lengths = np.diff(ends, prepend=-1)
    if (lengths > MOST_DIGITS).any():
        raise ValueError("a number is too large")
    starts = ends - lengths + 1
    numbers = (digits[starts] & 0x7F).astype(np.int64)
    for place in range(1, MOST_DIGITS):
        longer = np.flatnonzero(lengths > place)
        numbers[longer] |= (digits[starts[longer] + place] & 0x7F).astype(np.int64) << 7 * place
    return numbers


def gaps_of(numbers: NDArray[np.int64], group: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """The gaps of numbers that ascend in each group; ``group`` ascends."""
    return np.where(np.diff(group, prepend=-1) > 0, numbers, np.diff(numbers, prepend=0) - 1)


def from_gaps(gaps: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers with these gaps, in groups of these sizes."""
    ends = np.cumsum(gaps + 1)
    before: NDArray[np.int64] = np.concatenate([[0], ends])[np.repeat(np.cumsum(sizes) - sizes, sizes)]
    return ends - before - 1
