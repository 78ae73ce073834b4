"""The counts format: windows of tokens with exact counts, as a sorted trie in levels.

    n1_prefix ... nN_prefix   int32[rows]   row of the first n-1 symbols in order n-1; 0 in order 1
    n1_symbol ... nN_symbol   int32[rows]   last symbol
    n1_count  ... nN_count    int64[rows]   occurrences, at least the minimum count

A symbol is the token id + 1. The rows of an order are sorted by prefix, then by symbol, which is the order of their
symbols read from the left. All n-grams that continue the n-gram of a row are one range of the next order.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.artifact import Artifact
from spectool.artifacts.container import typed

KIND = "windows"
_MOST_ORDERS = 16
_COLUMNS = {"prefix": "int32", "symbol": "int32", "count": "int64"}
_BLOCK = 1 << 20  # rows checked at once
_MOST = 1 << 48  # tokens; sums of counts up to this do not overflow


class Level(NamedTuple):
    """All n-grams of one order: three mapped arrays, ``[rows]`` each."""

    prefix: NDArray[np.int32]  # row of the first n-1 symbols in order n-1; 0 in order 1
    symbol: NDArray[np.int32]  # last symbol
    count: NDArray[np.int64]  # type: ignore[assignment]  # a tuple's own method of this name is not needed


class Counts(Artifact):
    """Open counts, memory-mapped and read-only.

    They can be far larger than memory, so opening does not read the rows. Code that uses the numbers in them as indices
    calls `check` first, which reads them all.

    Attributes:
        orders: Longest n-gram, in symbols.
        min_count: Every n-gram that occurs this often is there, with its exact count, and no other.
        total: Tokens of the corpus, those below the minimum included.
    """

    format, version, again, roles = "spectool-counts", 3, "Count again", ("target",)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        arguments, statistics = self.manifest.arguments, self.manifest.statistics
        kind = arguments.get("kind")
        self._expect(kind == KIND, f"kind is {kind!r}, expected {KIND!r}, of the tokens of a tokenizer")
        self.orders = self._number(arguments, "orders", 1, _MOST_ORDERS)
        self.min_count = self._number(arguments, "min_count", 1)
        self.total = self._number(statistics, "total", 0, _MOST)
        self._levels = [self._open_level(order) for order in range(1, self.orders + 1)]
        self._expect(self.symbols < 1 << 31, f"{self.symbols} symbols, expected numbers of 31 bits")

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the tokenizer whose tokens were counted."""
        return str(self.manifest.tokenizers["target"]["fingerprint"])

    @property
    def symbols(self) -> int:
        """Number of the highest symbol that may occur: ids of the tokenizer."""
        return int(self.manifest.tokenizers["target"]["size"])

    def level(self, order: int) -> Level:
        """The n-grams of one order, 1 to `orders`, without copying."""
        return self._levels[order - 1]

    def spelled(self, order: int, rows: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
        """The symbols of the n-grams in some ``[rows]`` of an order, from the left: ``[rows, order]``."""
        symbols = np.empty((len(rows), order), dtype=np.int32)
        for length in range(order, 0, -1):
            level = self._levels[length - 1]
            symbols[:, length - 1] = level.symbol[rows]
            rows = level.prefix[rows]
        return symbols

    def _problems(self) -> Iterator[tuple[str, str]]:
        above = np.array([self.total], dtype=np.int64)
        for order, level in enumerate(self._levels, 1):
            for column, problem in self._problems_in(level, above):
                yield column_name(order, column), problem
            above = level.count

    def _problems_in(self, level: Level, above: NDArray[np.int64]) -> Iterator[tuple[str, str]]:
        """What is wrong with a level, given the counts of the one above; reads its rows in bounded memory."""
        last, occurrences = -1, 0
        for start in range(0, len(level.count), _BLOCK):
            prefix, symbol, count = (column[start : start + _BLOCK] for column in level)
            if prefix.min() < 0 or prefix.max() >= len(above):
                yield "prefix", "a prefix is no row of the order before"
            if symbol.min() < 1 or symbol.max() > self.symbols:
                yield "symbol", "a symbol is none of the vocabulary"
            keys = prefix.astype(np.int64) * (self.symbols + 1) + symbol
            if keys[0] <= last or (np.diff(keys) <= 0).any():
                yield "prefix", "rows are not in order"
            last = int(keys[-1])
            if count.min() < self.min_count:
                yield "count", f"a count is below the minimum of {self.min_count}"
            if (count > above[prefix]).any():
                yield "count", "an n-gram occurs more often than its prefix"
            occurrences += int(count.sum())
        if occurrences > self.total:
            yield "count", f"its n-grams occur {occurrences:,} times in {self.total:,} places"

    def _open_level(self, order: int) -> Level:
        try:
            kept = self.manifest.statistics["orders"][str(order)]["kept"]
        except (KeyError, TypeError):
            kept = None
        self._expect(type(kept) is int, f"no number of kept n-grams of order {order}")
        return Level(*(self._array(column_name(order, column), kind, kept) for column, kind in _COLUMNS.items()))

    def _number(self, part: Mapping[str, Any], key: str, low: int, high: float = math.inf) -> int:
        value: Any = part.get(key)
        fits = type(value) is int and low <= value <= high
        self._expect(fits, f"{key} is {value!r}, expected a number from {low} on")
        return int(value)


def column_name(order: int, column: str) -> str:
    """Name of a column of `Level`."""
    return f"n{order}_{column}"


def count_arrays(levels: Mapping[int, Level]) -> dict[str, NDArray[Any]]:
    """The arrays of counts: n-grams by order, sorted by prefix and symbol; the columns may be mapped files."""
    columns = sorted(_COLUMNS.items(), key=lambda each: -np.dtype(each[1]).itemsize)
    return {
        column_name(order, column): typed(getattr(level, column), kind)
        for column, kind in columns
        for order, level in levels.items()
    }
