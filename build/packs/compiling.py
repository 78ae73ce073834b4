"""A pack compiled for a tokenizer: from n-grams of pieces to the counts of token windows.

Every window of tokens begins in one piece and ends in another or the same, so it is counted with the n-gram of pieces
from the one to the other: as often as that n-gram occurs, and where the pieces are more than the pack's n-grams have,
not at all. Windows grow by a token, so each is a row of a shorter one and the token.
"""

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool import SpectoolError
from spectool.artifacts.pack import Pack
from spectool.build.counting import BREAK, Counts, add_up, memory_for_counting
from spectool.tokenization.backend import call_backend
from spectool.tokenization.tokenizer import Tokenizer

Numbers = NDArray[np.int64]
_PLACE_BYTES = 64  # of memory for each place where a window ends
_AT_ONCE = 1 << 13  # pieces that are encoded at once


def spell(pack: Pack, tokenizer: Tokenizer) -> tuple[NDArray[np.int32], Numbers]:
    """Encode every piece after the one that it follows most often.

    Returns:
        The symbols of all pieces, one after the other; and how many each piece has, ``[pieces]``.
    """
    before = _most_frequent_before(pack)
    ids, length = array("i"), list[int]()
    for start in range(0, len(before), _AT_ONCE):
        some = before[start : start + _AT_ONCE]
        texts = [first + piece for first, piece in zip(some, pack.pieces[start : start + _AT_ONCE], strict=True)]
        encodings = call_backend(tokenizer.backend.encode_batch, texts, tokenizer.name, add_special_tokens=False)
        for border, encoding in zip(map(len, some), encodings, strict=True):
            own = [token for token, (begin, _) in zip(encoding.ids, encoding.offsets, strict=True) if begin >= border]
            ids.extend(own)
            length.append(len(own))
        _require_memory(pack, len(ids))
    symbol_of = np.arange(1, tokenizer.size + 1, dtype=np.int32)
    symbol_of[list(tokenizer.specials)] = BREAK
    return symbol_of[np.frombuffer(ids, np.int32)], np.array(length, dtype=np.int64)


def _require_memory(pack: Pack, places: int) -> None:
    if places * _PLACE_BYTES > memory_for_counting():
        raise SpectoolError(f"{pack.path}: has too many n-grams for this machine's memory. Use a smaller pack")


def _most_frequent_before(pack: Pack) -> list[str]:
    """The piece that stands most often before each piece, or something like it where none is known."""
    before = ["a" if piece.startswith(" ") else "\n" for piece in pack.pieces]
    if len(pack.orders) > 1:
        pairs = pack.orders[1]
        by_count = np.argsort(pairs.count, kind="stable")
        for piece, previous in zip(pairs.symbol[by_count].tolist(), pairs.prefix[by_count].tolist(), strict=True):
            before[piece - 1] = pack.pieces[previous]
    return before


def compile_pack(pack: Pack, tokenizer: Tokenizer, longest: int) -> Counts:
    """The windows of 1 to ``longest`` tokens that a pack knows."""
    symbols, spelled = spell(pack, tokenizer)
    end = np.cumsum(spelled)  # of each piece in ``symbols``
    found, total = [tuple(np.zeros(0, kind) for kind in ("int64", "int8", "int32", "int64"))], 0
    # A window begins with every token of every piece: the row of its n-gram, its next token, where it ends so far.
    row = np.repeat(np.arange(len(pack.pieces)), spelled)
    token, window, length = np.arange(len(row)), np.full(len(row), -1), np.zeros(len(row), np.int64)
    for number, order in enumerate(pack.orders):
        if number:  # it goes on with every n-gram that begins with this one
            going = np.flatnonzero((window >= 0) & (length < longest))
            ends = np.cumsum(np.bincount(row[going], minlength=len(pack.orders[number - 1].count)))
            many = np.diff(ends, prepend=0)[order.prefix]
            row = np.repeat(np.arange(len(many)), many)
            going = going[np.arange(len(row)) + np.repeat(ends[order.prefix] - np.cumsum(many), many)]
            piece = order.symbol[row] - 1
            token, window, length = end[piece] - spelled[piece], window[going], length[going]
        left = end[order.symbol[row] - 1] - token
        cut_off = length + left > longest
        going = np.arange(len(row))
        for step in range(longest):
            going = going[(left[going] > step) & (length[going] < longest)]
            _require_memory(pack, total + len(going))
            length[going] += 1
            symbol = symbols[token[going] + step]
            found.append((window[going], length[going].astype(np.int8), symbol, order.count[row[going]]))
            window[going] = total + np.arange(len(going))
            total += len(going)
        window[cut_off] = -1
    return _counted(found, total, longest, tokenizer.size)


def _counted(found: Sequence[tuple[NDArray[Any], ...]], total: int, orders: int, symbols: int) -> Counts:
    """The windows that end at the places found, each a token in the last piece of an n-gram.

    Of each place: where the window without its last token ends, -1 for nowhere; its length, last symbol and count.
    """
    window, length, symbol, count = map(np.concatenate, zip(*found, strict=True))
    row: Numbers = np.full(total + 1, -1)
    row[-1] = 0  # of the empty window
    levels = []
    for order in range(1, orders + 1):
        those = np.flatnonzero((length == order) & (symbol != BREAK))
        those = those[row[window[those]] >= 0]
        level, row[those] = add_up(row[window[those]] * (symbols + 1) + symbol[those], count[those], symbols + 1)
        levels.append(level)
    return Counts(tuple(levels), symbols, int(levels[0].count.sum()))
