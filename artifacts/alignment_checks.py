"""What the arrays of an alignment must satisfy before anything follows them.

Each function yields what is wrong, as the name of an array and a phrase. Everything is compared as whole arrays, so a
file made to mislead a reader costs no more than any other. What holds afterwards bounds all that translation does:

- every id is an id, every offset lies inside its array;
- a spelling is not much longer than the bytes that it spells.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool.tokenization.token_bytes import Lists

LONGEST_TOKEN = 4096  # bytes of one token; of known vocabularies the longest has 1,024
_EXPANSION, _EXTRA = 12, 16  # ids per byte (U+FDFA becomes 33 bytes under NFKC), and for what surrounds a token

Problems = Iterator[tuple[str, str]]


def outside(array: str, values: NDArray[Any], low: int, high: int) -> Problems:
    """Yield a problem where some values are no ids from ``low`` to below ``high``."""
    if values.min(initial=low) < low or values.max(initial=low) >= high:
        yield array, f"ids outside {low} to {high - 1}"


def token_bytes_problems(array: str, token_bytes: Lists) -> Problems:
    """Check where the bytes of tokens begin."""
    lengths = np.diff(token_bytes.offsets.astype(np.int64))
    if _out_of_order(token_bytes.offsets, len(token_bytes.values)):
        yield array, "token bytes out of order"
    elif lengths.max(initial=0) > LONGEST_TOKEN:
        yield array, f"token {lengths.argmax()} has {lengths.max():,} bytes, expected at most {LONGEST_TOKEN:,}"


def _out_of_order(offsets: NDArray[np.uint32], size: int) -> bool:
    """Whether offsets are not those of lists that fill ``size`` places one after the other."""
    return bool(offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any() or offsets[-1] != size)


def spelling_problems(
    array: str, values: NDArray[np.int32], offsets: NDArray[np.uint32], token_bytes: Lists, size: int
) -> Problems:
    """Check the spellings of tokens with these bytes, in a vocabulary of ``size`` ids."""
    if _out_of_order(offsets, len(values)):
        yield array, "lists out of order"
        return
    yield from outside(array, values, 0, size)
    lengths = np.diff(offsets.astype(np.int64))
    spare = _EXPANSION * np.diff(token_bytes.offsets.astype(np.int64)) + _EXTRA - lengths
    if spare.min(initial=0) < 0:
        token = int(spare.argmin())
        yield array, f"token {token} of {len(token_bytes[token])} bytes is spelled by {lengths[token]:,} ids"


def risk_problems(array: str, risks: NDArray[np.float16]) -> Problems:
    """Check the absorption risks of one side: shares, NaN for a token that was never seen."""
    if not (np.isnan(risks) | ((risks >= 0) & (risks <= 1))).all():
        yield array, "risks outside 0 to 1"
