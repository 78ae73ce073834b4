"""What the arrays of an alignment must satisfy before anything follows them.

Each function yields what is wrong, as the name of a file and a phrase. Everything is compared as whole arrays, so a
file made to mislead a reader costs no more than any other. What holds afterwards bounds all that translation does:

- every id is an id, every offset lies inside its array;
- un-merging a token gives parts whose bytes side by side are the token's own, so trees of merges end;
- merging never gives more bytes than there were;
- a spelling is not much longer than the bytes that it spells.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool.tokenization.incremental.boundaries import JOIN, MOST_CLASSES
from spectool.tokenization.incremental.merges import UNREACHABLE, MergeTable
from spectool.tokenization.token_bytes import TokenBytes

LONGEST_TOKEN = 4096  # bytes of one token; of known vocabularies the longest has 1,024
_DEEPEST = 512  # merges down one edge of a tree; known ones have 30
_EXPANSION, _EXTRA = 12, 16  # ids per byte (U+FDFA becomes 33 bytes under NFKC), and for what surrounds a token
_NEVER = 2**31 - 1  # the rank of no merge
_CODES = 0x110000
_SURROGATES = (0xD800, 0xDFFF)

Problems = Iterator[tuple[str, str]]


def outside(file: str, values: NDArray[Any], low: int, high: int) -> Problems:
    """Yield a problem where some values are no ids from ``low`` to below ``high``."""
    if values.min(initial=low) < low or values.max(initial=low) >= high:
        yield file, f"ids outside {low} to {high - 1}"


def token_bytes_problems(file: str, token_bytes: TokenBytes) -> Problems:
    """Check where the bytes of tokens begin."""
    lengths = np.diff(token_bytes.offsets.astype(np.int64))
    if _out_of_order(token_bytes.offsets, len(token_bytes.blob)):
        yield file, "token bytes out of order"
    elif lengths.max(initial=0) > LONGEST_TOKEN:
        yield file, f"token {lengths.argmax()} has {lengths.max():,} bytes, expected at most {LONGEST_TOKEN:,}"


def _out_of_order(offsets: NDArray[np.uint32], size: int) -> bool:
    """Whether offsets are not those of lists that fill ``size`` places one after the other."""
    return bool(offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any() or offsets[-1] != size)


def spelling_problems(
    file: str, values: NDArray[np.int32], offsets: NDArray[np.uint32], token_bytes: TokenBytes, size: int
) -> Problems:
    """Check the spellings of tokens with these bytes, in a vocabulary of ``size`` ids."""
    if _out_of_order(offsets, len(values)):
        yield file, "lists out of order"
        return
    yield from outside(file, values, 0, size)
    lengths = np.diff(offsets.astype(np.int64))
    spare = _EXPANSION * np.diff(token_bytes.offsets.astype(np.int64)) + _EXTRA - lengths
    if spare.min(initial=0) < 0:
        token = int(spare.argmin())
        yield file, f"token {token} of {len(token_bytes[token])} bytes is spelled by {lengths[token]:,} ids"


def merge_problems(side: str, table: MergeTable, token_bytes: TokenBytes) -> Problems:
    """Check the tree of every token and the list of merges of one side."""
    left, right, size = table.left, table.right, len(token_bytes)
    lengths = np.diff(token_bytes.offsets.astype(np.int64))
    for name, part in (("left", left), ("right", right)):
        yield from outside(f"{side}_{name}.npy", part, UNREACHABLE, size)
    inner, tree = np.flatnonzero(left >= 0), f"{side}_left.npy"
    if ((left >= 0) != (right >= 0)).any():
        yield tree, "a token has one part only"
    elif (wrong := _unlike_parts(token_bytes, inner, left[inner], right[inner])) is not None:
        yield tree, f"token {wrong} is not its parts side by side"
    elif any(_deeper(part, inner) for part in (left, right)):
        yield tree, f"a token of more than {_DEEPEST} merges down one edge"
    yield from outside(f"{side}_rank.npy", table.rank, -1, _NEVER)
    pairs, made = f"{side}_merge_pairs.npy", f"{side}_merge_results.npy"
    first, second, results = table.pairs >> 32, table.pairs & 0xFFFFFFFF, table.results
    parts = ((pairs, first), (pairs, second), (made, results))
    found = [problem for file, part in parts for problem in outside(file, part, 0, size)]
    yield from found[:1]
    if (np.diff(table.pairs) <= 0).any():
        yield pairs, "pairs out of order"
    yield from outside(f"{side}_merge_ranks.npy", table.ranks, 0, _NEVER)
    if not found and (lengths[results] > lengths[first] + lengths[second]).any():
        yield made, "a merge makes bytes that its parts have not"


def _unlike_parts(token_bytes: TokenBytes, tokens: NDArray[Any], left: NDArray[Any], right: NDArray[Any]) -> int | None:
    """Return the first of ``tokens`` whose bytes are not those of two parts, each with some; None if there is none."""
    begins = token_bytes.offsets.astype(np.int64)
    lengths = np.diff(begins)
    wrong = (lengths[left] + lengths[right] != lengths[tokens]) | (lengths[left] == 0) | (lengths[right] == 0)
    if not wrong.any():
        for part, shift in ((left, np.zeros_like(left, np.int64)), (right, lengths[left])):
            # Of every part byte by byte: its own, and where the same byte stands in the whole.
            many = lengths[part]
            within = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
            whole = np.repeat(begins[tokens] + shift, many) + within
            unlike = token_bytes.blob[whole] != token_bytes.blob[np.repeat(begins[part], many) + within]
            wrong[np.repeat(np.arange(len(tokens)), many)[unlike]] = True
    return int(tokens[wrong.argmax()]) if wrong.any() else None


def _deeper(part: NDArray[np.int32], tokens: NDArray[Any]) -> bool:
    """Return whether following one part leads through more than `_DEEPEST` merges; trees are known to end."""
    for _ in range(_DEEPEST):
        tokens = part[tokens]
        tokens = tokens[part[tokens] >= 0]
        if not len(tokens):
            return False
    return True


def character_problems(file: str, codes: NDArray[np.uint32]) -> Problems:
    """Check the characters that stand for classes."""
    if not 0 < len(codes) <= MOST_CLASSES or len(np.unique(codes)) < len(codes):
        yield file, f"expected 1 to {MOST_CLASSES} different characters"
    elif codes.max() >= _CODES or ((codes >= _SURROGATES[0]) & (codes <= _SURROGATES[1])).any():
        yield file, "a class without a character"


def verdict_problems(file: str, verdicts: NDArray[np.uint8]) -> Problems:
    """Check the verdicts of a boundary table."""
    if verdicts.max(initial=0) > JOIN:
        yield file, f"verdicts above {JOIN}"


def risk_problems(file: str, risks: NDArray[np.float16]) -> Problems:
    """Check the absorption risks of one side: shares, NaN for a token that was never seen."""
    if not (np.isnan(risks) | ((risks >= 0) & (risks <= 1))).all():
        yield file, "risks outside 0 to 1"
