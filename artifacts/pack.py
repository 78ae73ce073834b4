"""The pack format: n-grams of a language's pieces, such as words, with their counts (docs/formats.md).

All n-grams are sorted by their pieces. The suffix of an n-gram, which is without its oldest piece, is an n-gram of the
order before: one of those that begin with the context's suffix, and ``places`` says which.
"""

import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool import ArtifactError
from spectool.artifacts.artifact import Artifact
from spectool.artifacts.numbers import from_gaps, gaps_of, to_digits

ORDERS = 5  # highest order of an n-gram
LONGEST_PIECE = 64  # characters
STEPS = 4  # of a count for each power of two
_HIGHEST_STEP = 32 * STEPS
_MOST_FOR_EACH_BYTE = 2  # n-grams for each byte of the file; text makes about 0.7
_MOST_BYTES = 9 * LONGEST_PIECE  # of a piece, which bounds what is decompressed
_LZMA: list[dict[str, Any]] = [
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 8 << 20, "pb": 0}
]

Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Level:
    """All n-grams of one order, sorted by prefix and symbol, which is the order of their symbols from the left."""

    prefix: Integers  # row of the first n-1 symbols in order n-1, 0 in order 1, ``[rows]``
    symbol: Integers  # last symbol: the token id or the number of the piece, + 1, ``[rows]``
    count: NDArray[np.int64]  # occurrences, about 9% coarse once written to a pack, ``[rows]``


@dataclass(frozen=True, slots=True)
class Order(Level):
    """A level with suffixes."""

    suffix: NDArray[np.int64]  # row of the n-gram without its first symbol, in the order below, ``[rows]``


class Pack(Artifact):
    """An open pack, read into memory.

    Attributes:
        pieces: Words, numbers, punctuation and line ends, most with the space before them; most frequent first.
        orders: The n-grams of 1, 2, ... pieces.
        occurrences: Pieces of the text that was counted, with those that are in no n-gram.
    """

    format, version = "spectool-pack", 1
    again = "Fetch the pack again, or build it: spectool pack"
    unpacker = partial(lzma.LZMADecompressor, lzma.FORMAT_RAW, filters=_LZMA)

    def __init__(self, path: Path) -> None:
        """Open the pack at ``path`` and check all of it."""
        super().__init__(path)
        for name, kind in (("credits", str), ("texts", dict)):
            listed = self.manifest.inputs.get(name, [])
            fits = isinstance(listed, list) and all(isinstance(each, kind) for each in listed)
            self._expect(fits, f"{name!r} of its manifest, expected a list of {kind.__name__}")
        rows: Any = self.manifest.statistics.get("ngrams")
        most = _MOST_FOR_EACH_BYTE * len(self.file.data)
        fits = (
            isinstance(rows, list)
            and 1 <= len(rows) <= ORDERS
            and all(type(n) is int and n >= 0 for n in rows)
            and rows[0]
        )
        self._expect(fits and sum(rows) <= most, f"{rows!r} n-grams, expected at most {most:,} of {ORDERS} orders")
        self.occurrences: int = self.manifest.statistics.get("occurrences", -1)
        fits = type(self.occurrences) is int and self.occurrences >= 0
        self._expect(fits, f"{self.occurrences!r} occurrences, expected a number of pieces")
        self.pieces = self._read_pieces(rows[0])
        counts = self._unpacked("counts", sum(rows))
        self._expect(len(counts) == sum(rows), f"{len(counts):,} counts, expected {sum(rows):,}", "counts")
        self._expect(int(counts.max(initial=0)) <= _HIGHEST_STEP, "a count is too large", "counts")
        count = np.split(np.rint(2 ** (counts / STEPS)).astype(np.int64), np.cumsum(rows)[:-1])
        followers = np.split(self._numbers("followers", sum(rows[:-1])), np.cumsum(rows[:-1])[:-1])
        places = np.split(self._numbers("places", sum(rows[1:])), np.cumsum(rows[1:])[:-1])
        none = np.zeros(rows[0], np.int64)
        self.orders = [Order(none, np.arange(rows[0]) + 1, count[0], none)]
        # How many n-grams begin with each one of two orders before, and where they begin.
        after, begin = np.array([rows[0]]), np.zeros(1, np.int64)
        for those, gaps, occurrences in zip(followers, places, count[1:], strict=False):
            self._expect(int(those.sum()) == len(gaps), f"{those.sum():,} of {len(gaps):,} n-grams", "followers")
            before = self.orders[-1]
            prefix, place = np.repeat(np.arange(len(those)), those), from_gaps(gaps, those)
            context = before.suffix[prefix]
            self._expect(bool((place < after[context]).all()), "no n-gram of the order before", "places")
            suffix = begin[context] + place
            most = np.minimum(before.count[prefix], before.count[suffix])
            self._expect(bool((occurrences <= most).all()), "an n-gram occurs more often than a part of it", "counts")
            self.orders.append(Order(prefix, before.symbol[suffix], occurrences, suffix))
            after, begin = those, np.cumsum(those) - those

    def __len__(self) -> int:
        return sum(len(order.count) for order in self.orders)

    def _read_pieces(self, number: int) -> Sequence[str]:
        raw = self._unpacked("pieces", _MOST_BYTES * number)
        held = len(raw) - np.count_nonzero(raw)
        ends = held == number and raw[-1] == 0
        self._expect(ends, f"{held:,} zero bytes, expected {number:,}, with one at the end", "pieces")
        try:
            pieces = raw[:-1].tobytes().decode().split("\0")
        except UnicodeDecodeError as error:
            raise ArtifactError(f"{self.path}: pieces: {error}. {self.again}") from error
        fit = all(0 < len(piece) <= LONGEST_PIECE for piece in pieces)
        self._expect(fit and len(set(pieces)) == number, "a piece repeats, is empty or too long", "pieces")
        return pieces


def pack_arrays(
    pieces: Sequence[str], orders: Sequence[Order], occurrences: int
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays of a pack, and what its manifest's statistics say of them; arguments as the attributes of `Pack`."""
    followers, places = [none := np.zeros(0, np.int64)], [none]
    begin = np.zeros(1, np.int64)
    for before, order in pairwise(orders):
        those = np.bincount(order.prefix, minlength=len(before.count))
        followers.append(those)
        places.append(gaps_of(order.suffix - begin[before.suffix[order.prefix]], order.prefix))
        begin = np.cumsum(those) - those
    steps = [np.rint(STEPS * np.log2(np.maximum(order.count, 1))) for order in orders]
    content = {
        "pieces": "".join(f"{piece}\0" for piece in pieces).encode(),
        "counts": np.clip(np.concatenate(steps), 0, _HIGHEST_STEP).astype(np.uint8).tobytes(),
        "followers": to_digits(np.concatenate(followers)),
        "places": to_digits(np.concatenate(places)),
    }
    arrays = {
        name: np.frombuffer(lzma.compress(raw, lzma.FORMAT_RAW, filters=_LZMA), np.uint8)
        for name, raw in content.items()
    }
    return arrays, {"occurrences": occurrences, "ngrams": [len(order.count) for order in orders]}
