"""Numbers in few bytes: what is written is read, in memory that is in proportion to how many there are."""

import tracemalloc

import numpy as np
import pytest

from spectool.artifacts.numbers import MOST_DIGITS, from_digits, to_digits


@pytest.mark.parametrize("bits", [0, 7, 8, 7 * MOST_DIGITS])
def test_what_is_written_is_read_in_little_memory(bits: int) -> None:
    rng = np.random.default_rng(bits)
    numbers = rng.integers(2**bits, size=100_000) >> rng.integers(bits // 3 + 1, size=100_000)
    digits = np.frombuffer(to_digits(numbers), np.uint8)
    tracemalloc.start()
    found = from_digits(digits, len(numbers))
    assert tracemalloc.get_traced_memory()[1] < 75 * len(numbers)
    tracemalloc.stop()
    assert found.dtype == np.int64 and (found == numbers).all()
    assert from_digits(digits[:0], 0).tolist() == []
