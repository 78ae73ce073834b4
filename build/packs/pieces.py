"""Text to counts of pieces: words, numbers and punctuation, each with the space before it, and line ends.

Tokenizers hardly ever merge across the borders of such pieces, so the ids of a text are those of its pieces. Text of
any size is counted in parts, which are added up. Before each further part, n-grams that have occurred only once are
forgotten, so a text of one part is counted exactly, and in others rare n-grams may be missing or count too little.
"""

import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.pack import LONGEST_PIECE, Level
from spectool.build.corpus_reading import Progress, quiet
from spectool.build.counting import BREAK, Counts, add_counts, count_symbols

_MARKS = "".join(filter(lambda char: unicodedata.category(char)[0] == "M", map(chr, range(0x20000))))  # combining
_LETTER = r"[^\W\d_]"
_PIECE = re.compile(
    rf" ?{_LETTER}(?:{_LETTER}|[{_MARKS}]|['’ʼ](?={_LETTER}))*"  # a word
    r"| ?\d+"
    r"| ?(?:[^\w\s]|_)+\n*"  # many tokenizers merge punctuation with the line ends after it
    r"|\s*\n"
    r"|\s+(?!\S)|\s"  # of several spaces, the last belongs to the word
)
_PART = 1 << 24  # pieces that are counted at once, which are 100 MB of text in Latin letters
MOST_ROWS = 1 << 22  # n-grams of one order that are remembered after each part


class PieceCounts(NamedTuple):
    """The n-grams of a text's pieces."""

    pieces: Sequence[str]  # symbol n stands for piece n - 1
    counts: Counts


def split(text: str) -> list[str]:
    """The pieces of a text, which is all of them joined.

    >>> split("W 1918 r. (11 listopada)\\n")
    ['W', ' 1918', ' r', '.', ' (', '11', ' listopada', ')\\n']
    """
    return _PIECE.findall(text)


def count_pieces(texts: Iterable[str], orders: int, progress: Progress) -> PieceCounts:
    """Count the n-grams of 1 to ``orders`` pieces in texts of any size; memory is bounded."""
    before: list[PieceCounts] = []
    for pieces, symbols in _parts(texts):
        progress(f"counting {len(symbols):,} pieces")
        part = PieceCounts(pieces, count_symbols(symbols, len(pieces), orders, 1, quiet))
        before = [without_rare(add_pieces([*(without_rare(each, 2) for each in before), part]), 1)]
    return before[0]


def _parts(texts: Iterable[str]) -> Iterator[tuple[list[str], NDArray[np.int32]]]:
    """The pieces of each part, and the text in their symbols, with a break around every document."""
    symbol_of, symbols = defaultdict[str, int](count(1).__next__), array("i", [BREAK])
    for text in texts:
        symbols.extend(map(symbol_of.__getitem__, split(text)))
        symbols.append(BREAK)
        if len(symbols) > _PART:
            yield list(symbol_of), np.asarray(symbols)
            symbol_of, symbols = defaultdict[str, int](count(1).__next__), array("i", [BREAK])
    if len(symbols) > 1:
        yield list(symbol_of), np.asarray(symbols)


def add_pieces(parts: Sequence[PieceCounts], order: Sequence[str] | None = None) -> PieceCounts:
    """The n-grams of all parts with the sums of their counts, with the pieces in an ``order``."""
    pieces = sorted({piece for part in parts for piece in part.pieces}) if order is None else order
    symbol_of = {piece: symbol for symbol, piece in enumerate(pieces, 1)}
    renumbered = []
    for part in parts:
        symbols = np.array([BREAK, *map(symbol_of.__getitem__, part.pieces)], dtype=np.int32)
        levels = (Level(level.prefix, symbols[level.symbol], level.count) for level in part.counts.levels)
        renumbered.append(Counts(tuple(levels), len(pieces), part.counts.total))
    return PieceCounts(pieces, add_counts(renumbered, len(pieces)))


def without_rare(found: PieceCounts, min_count: int, min_names: int = 0) -> PieceCounts:
    """The n-grams that occur at least ``min_count`` times, those of more than two pieces twice at least.

    Where too many of one order do, the rarest of it and of longer ones are left out.

    Without those that have a piece which is not in lower case and occurs less than ``min_names`` times, or is longer
    than `LONGEST_PIECE`, such as a line of dashes.
    """
    kept: list[NDArray[np.bool_]] = []
    usable = np.array([False, *(len(piece) <= LONGEST_PIECE for piece in found.pieces)])
    if min_names:
        tokens = found.counts.levels[0]
        lower = np.array([piece.islower() for piece in found.pieces], dtype=np.bool_)
        usable[tokens.symbol] &= (tokens.count >= min_names) | lower[tokens.symbol - 1]
    for order, level in enumerate(found.counts.levels, 1):
        min_count = max(min_count, 1 if order <= 2 else 2)
        if len(level.count) > MOST_ROWS:
            min_count = max(min_count, int(np.partition(level.count, -MOST_ROWS)[-MOST_ROWS]) + 1)
        keep = (level.count >= min_count) & usable[level.symbol]
        kept.append(keep & kept[-1][level.prefix] if kept else keep)
    return keep_rows(found, kept)


def keep_rows(found: PieceCounts, kept: Sequence[NDArray[np.bool_]]) -> PieceCounts:
    """The n-grams that are kept, by row in each order, and their pieces.

    Those that a kept one begins with have to be kept, too.
    """
    tokens = found.counts.levels[0].symbol[kept[0]]
    symbol_of = np.zeros(len(found.pieces) + 1, dtype=np.int32)
    symbol_of[tokens] = np.arange(1, len(tokens) + 1)
    row_of = np.zeros(1, dtype=np.int32)
    levels: list[Level] = []
    for level, keep in zip(found.counts.levels, kept, strict=True):
        levels.append(Level(row_of[level.prefix[keep]], symbol_of[level.symbol[keep]], level.count[keep]))
        row_of = np.cumsum(keep, dtype=np.int32) - 1
    pieces = [found.pieces[symbol - 1] for symbol in tokens]
    return PieceCounts(pieces, Counts(tuple(levels), len(pieces), found.counts.total))
