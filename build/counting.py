"""Text to counts: how often each window of tokens (n-gram) occurs, exactly and in memory.

An n-gram is a key, one number: the row of its first n-1 symbols in order n-1, times the number of symbols, plus its
last symbol; so sorted keys are sorted n-grams. An n-gram can reach the minimum count only if both its (n-1)-grams do,
so each order looks only at the places where two survivors of the order before begin next to each other.
"""

import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from spectool import SpectoolError
from spectool.artifacts.pack import Level
from spectool.build.corpus_reading import Progress
from spectool.corpora import Corpus
from spectool.tokenization.tokenizer import Tokenizer

BREAK = 0
"""The symbol between documents and where a special token is, which no n-gram contains."""

_TOKEN_BYTES = 110  # of memory for each token of the text, at the peak of building a dictionary
_BYTES_A_TOKEN = 3  # of text, where tokens are short
_MOST_TOKENS = 2**31 - 1  # places are numbers of 32 bits


_NO_ROWS = Level(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class Counts:
    """The n-grams of a text that occur at least a minimum number of times, with their exact counts."""

    levels: tuple[Level, ...]  # those of order 1, 2, ... N
    symbols: int  # highest symbol that may occur: ids of the tokenizer
    total: int  # tokens of the text, those below the minimum included

    def spelled(self, order: int, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """The symbols of the n-grams in some ``[rows]`` of an order, from the left: ``[rows, order]``."""
        symbols = np.empty((len(rows), order), dtype=np.int32)
        for length in range(order, 0, -1):
            level = self.levels[length - 1]
            symbols[:, length - 1] = level.symbol[rows]
            rows = level.prefix[rows].astype(np.int64)
        return symbols


def count_windows(
    corpus: Corpus, texts: Iterable[str], tokenizer: Tokenizer, orders: int, min_count: int, progress: Progress
) -> Counts:
    """Count the windows of 1 to ``orders`` tokens in ``texts``, each by itself, which are from a ``corpus``.

    Those that occur less often than ``min_count`` are left out.

    Raises:
        CorpusError: The text cannot be read.
        SpectoolError: The text does not fit into memory.
    """
    progress("splitting into tokens")
    return count_symbols(_symbols(corpus, texts, tokenizer), tokenizer.size, orders, min_count, progress)


def count_symbols(symbols: NDArray[np.int32], highest: int, orders: int, min_count: int, progress: Progress) -> Counts:
    """Count the n-grams of ``symbols``, the highest of which is ``highest``; the others as for `count_windows`."""
    uses = np.bincount(symbols, minlength=highest + 1)
    uses[BREAK] = 0
    kept = np.flatnonzero(uses >= min_count).astype(np.int32)
    levels = [Level(np.zeros_like(kept), kept, uses[kept])]
    row_of = np.full(highest + 1, -1, dtype=np.int32)
    row_of[kept] = np.arange(len(kept))
    rows = row_of[symbols]
    for order in range(2, orders + 1):
        progress(f"counting {order}-grams")
        level, rows = _longer(rows, symbols, order, highest + 1, min_count)
        levels.append(level)
    return Counts(tuple(levels), highest, int(np.count_nonzero(symbols)))


def add_counts(parts: Sequence[Counts], symbols: int) -> Counts:
    """The n-grams of all parts, each with the sum of its counts; ``symbols`` is the highest symbol of any part.

    The rows of a part need not be sorted, so this also sorts n-grams whose symbols were changed.
    """
    rows = [np.zeros(1, dtype=np.int64) for _ in parts]  # of each part's n-grams among those of all parts
    levels: list[Level] = []
    for each in zip_longest(*(part.levels for part in parts), fillvalue=_NO_ROWS):
        keys = np.concatenate([a[b.prefix] * (symbols + 1) + b.symbol for a, b in zip(rows, each, strict=True)])
        level, places = add_up(keys, np.concatenate([level.count for level in each]), symbols + 1)
        levels.append(level)
        rows = np.split(places, np.cumsum([len(level.count) for level in each])[:-1])
    return Counts(tuple(levels), symbols, sum(part.total for part in parts))


def add_up(keys: NDArray[np.int64], counts: NDArray[np.int64], base: int) -> tuple[Level, NDArray[np.int64]]:
    """The n-grams of some ``[keys]``, each once with the sum of its counts, and the row of each key."""
    found, rows = np.unique(keys, return_inverse=True)
    count = np.bincount(rows, weights=counts, minlength=len(found))
    prefix, symbol = np.divmod(found, base)
    return Level(prefix.astype(np.int32), symbol.astype(np.int32), count.astype(np.int64)), rows


def _symbols(corpus: Corpus, texts: Iterable[str], tokenizer: Tokenizer) -> NDArray[np.int32]:
    """The symbols of all documents, with a break around each."""
    ids = array("i", [tokenizer.size])
    for _, found in tokenizer.encode_each(texts):
        ids.extend(found)
        ids.append(tokenizer.size)
        _require_memory(corpus, len(ids))
    symbol_of = np.arange(1, tokenizer.size + 2, dtype=np.int32)
    symbol_of[[*tokenizer.specials, tokenizer.size]] = BREAK
    return symbol_of[np.frombuffer(ids, np.int32)]


def _longer(
    rows: NDArray[np.int32], symbols: NDArray[np.int32], order: int, base: int, min_count: int
) -> tuple[Level, NDArray[np.int32]]:
    """The n-grams of an order, and which of them begins at each place; -1 where none does.

    ``rows`` says the same of the order before.
    """
    places = np.flatnonzero((rows[:-1] >= 0) & (rows[1:] >= 0)).astype(np.int32)
    keys = rows[places].astype(np.int64) * base + symbols[places + (order - 1)]
    keys, row, counts = np.unique(keys, return_inverse=True, return_counts=True)
    kept = counts >= min_count
    prefix, symbol = np.divmod(keys[kept], base)
    found = np.full(len(rows), -1, dtype=np.int32)
    found[places] = np.where(kept, np.cumsum(kept) - 1, -1)[row]
    return Level(prefix.astype(np.int32), symbol.astype(np.int32), counts[kept]), found


def _require_memory(corpus: Corpus, tokens: int) -> None:
    needed, there = tokens * _TOKEN_BYTES, memory_for_counting()
    if needed > there:
        room = there // _TOKEN_BYTES * _BYTES_A_TOKEN
        raise SpectoolError(
            f"{corpus.spec}: counting this text needs more than {needed / 1e9:,.1f} GB; spectool uses at most half of "
            f"the memory, {there / 1e9:,.1f} GB, which is enough for {room / 1e6:,.0f} MB of text. "
            "Build a dictionary of each part of it, and give all of them: --dict A --dict B"
        )


@cache
def memory_for_counting() -> int:
    """Bytes of memory that counting may take: half of what the machine has."""
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return min(half, _MOST_TOKENS * _TOKEN_BYTES)
