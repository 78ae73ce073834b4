"""Whether a marisa-trie file from a stranger is safe to use.

The library maps a file and uses numbers in it as indexes. A wrong one reads outside the file or leads in a circle, so
everything that a walk in the trie relies on is checked here before the library opens the file:

    header   "We love Marisa." and a NUL
    trie     louds          bits   the tree: 10, then for each node, level by level, a 1 for each child and a 0; then 0
             terminals      bits   where keys end; in the outermost trie only
             links          bits   nodes whose label is a string, which lies in the next trie or in the tail
             bases          u8     label of each node, or the low byte of its link
             extras         flat   the links' higher bits, packed
             tail           bytes  strings that end with NUL, if there is no next trie; and bits, here always empty
             [trie]                the next trie: a link is a node of it, read from there up to the root
             cache          3 u32  parent, child, link: frequent edges, found by a hash
             children       u32    of the root
             flags          u32    how it was built

A vector is its size in bytes as u64, then its content, padded to words of 8 bytes. Bits are a vector of u64, and as u32
their number and that of the ones. Three vectors follow, which can be computed from them: ranks, every 512th zero,
every 512th one. What can be computed from something else is computed and compared. The text of every node is at most as
long as the longest key, so that no look-up takes long.

Source: ``lib/marisa/grimoire`` of marisa-trie 0.2.6 to 0.3.1, in its Python package 1.3 and 1.4.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_HEADER = b"We love Marisa.\0"
_DEEPEST = 8  # nested tries; we write three
_CHILDREN = 256  # of one node: siblings differ in their first byte
_SMALLEST_CACHE = 256  # of the outermost trie, which finds a label by its place
_NOTHING = 0xFFFFFFFF
_NO_LINK = 0xFFFFFF00  # above the label of a cached node that is no link
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1)  # in each byte
_MOST_BYTES = 64  # of all keys together, for each byte of the file; ours have fewer than ten


def check_trie(data: NDArray[np.uint8], longest: int) -> None:
    """Check that the bytes of a file are a trie that is safe to use.

    Takes about 20 ms for each MB, and 25 bytes of memory for each byte of the file.

    Args:
        data: All bytes of the file.
        longest: Maximum length of a key in bytes.

    Raises:
        ValueError: Something would lead outside the file, or take too long.
    """
    read = _Reader(data)
    if read.part(len(_HEADER)).tobytes() != _HEADER:
        raise ValueError("does not begin as a marisa trie does")
    lengths, terminals = _check_nested(read, longest, _DEEPEST)
    if read.place != len(data):
        raise ValueError("goes on after its end")
    if terminals[0]:
        raise ValueError("a key is empty")
    if int(lengths[terminals].sum(dtype=np.int64)) > _MOST_BYTES * len(data):
        raise ValueError(f"its keys are more than {_MOST_BYTES} times as long as the file")


class _Reader:
    """Reads consecutive parts of a file within its bounds."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data, self.place = data, 0

    def part(self, size: int) -> NDArray[np.uint8]:
        if size > len(self._data) - self.place:
            raise ValueError("ends too early")
        self.place += size
        return self._data[self.place - size : self.place]

    def number(self, kind: str) -> int:
        kept = np.dtype(kind)
        return int(self.part(kept.itemsize).view(kept)[0])

    def vector(self, kind: str, of: int = 1) -> NDArray[Any]:
        """Numbers of a type; their count must be a multiple of ``of``."""
        size, item = self.number("<u8"), np.dtype(kind).itemsize * of
        if size % item:
            raise ValueError("a vector ends within a value")
        content = self.part(size).view(kind)
        self.part(-size % 8)
        return content

    def bits(self, expected: int, zeros: bool = False, ones: bool = False) -> NDArray[np.bool_]:
        """An expected number of bits, with indexes of their ``zeros`` and ``ones`` if those are set."""
        units, size, count = self.vector("<u8"), self.number("<u4"), self.number("<u4")
        bits: NDArray[Any] = np.unpackbits(units.view(np.uint8), bitorder="little")
        if size != expected or len(units) != -(-size // 64) or bits[size:].any():
            raise ValueError(f"{size} bits, expected {expected}")
        bits = bits[:size].view(np.bool_)
        blocks = -(-size // 512)
        each = np.zeros(blocks * 8, np.int64)
        each[: len(units)] = _ONES[units.view(np.uint8)].reshape(-1, 8).sum(axis=1)
        after = np.cumsum(each).reshape(blocks, 8)
        total = int(after[-1, -1]) if blocks else 0
        relative = np.zeros((blocks + 1, 3), np.uint32)
        relative[1:, 0] = after[:, 7]
        within = after[:, :7] - relative[:-1, :1]
        relative[:-1, 1] = (within[:, :4] << np.array([0, 7, 15, 23])).sum(axis=1)
        relative[:-1, 2] = (within[:, 4:] << np.array([0, 9, 18])).sum(axis=1)
        same = np.array_equal(self.vector("<u4", 3), relative.ravel())
        for wanted, these in ((zeros, ~bits), (ones, bits)):
            places = np.append(np.flatnonzero(these)[::512], size) if wanted else ()
            same = np.array_equal(self.vector("<u4"), places) and same
        if count != total or not same:
            raise ValueError("an index of bits does not fit them")
        return bits

    def no_bits(self) -> None:
        """Read an empty vector of bits."""
        if any((len(self.vector("<u8")), self.number("<u8"), *(len(self.vector("<u4")) for _ in range(3)))):
            raise ValueError("bits where none are expected")

    def packed(self, expected: int) -> NDArray[np.uint64]:
        """An expected number of values, each of the same number of bits."""
        units, width, mask, size = self.vector("<u8"), self.number("<u4"), self.number("<u4"), self.number("<u8")
        if size != expected or width > 32 or mask != (1 << width) - 1:
            raise ValueError(f"{size} links of {width} bits, expected {expected}")
        if len(units) != (-(-width * size // 64) if width else min(1, size)):
            raise ValueError("the links have another size than they say")
        first = np.arange(0, size * width, width) if width else np.zeros(size, np.int64)
        padded = np.append(units, np.uint64(0)).view(np.uint8)
        words = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))  # one at each byte
        found: NDArray[np.uint64] = words[first >> 3] >> (first & 7).astype(np.uint64) & np.uint64(mask)
        return found


def _check_nested(read: _Reader, longest: int, deepest: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Check nested tries; returns the length of each node's text, and whether a key ends there."""
    outermost = deepest == _DEEPEST
    # The number of nodes, which the sizes of all parts follow from, is half the number of bits, which comes after them.
    start = read.place
    read.vector("<u8")
    nodes = (read.number("<u4") - 2) // 2
    read.place = start
    if nodes < 1:
        raise ValueError("has no nodes")
    louds = read.bits(2 * nodes + 2, zeros=outermost, ones=True)
    parents = _parents(louds, nodes)
    if outermost:
        terminals = read.bits(nodes + 1, ones=True)
        if (parents[_CHILDREN:] == parents[:-_CHILDREN]).any():
            raise ValueError(f"a node has more than {_CHILDREN} children")
    else:
        read.no_bits()
        terminals = np.zeros(0, np.bool_)
    links = read.bits(nodes)
    bases = read.vector("u1")
    if len(bases) != nodes or links[0] or (outermost and terminals[-1]):
        raise ValueError("the parts of a trie do not fit each other")
    linked = np.flatnonzero(links)
    targets = bases[linked] | read.packed(len(linked)) << np.uint64(8)
    sizes = np.ones(nodes, np.int64)
    sizes[0] = 0
    tail = read.vector("u1")
    read.no_bits()
    if len(linked) and not len(tail):
        if deepest == 1:
            raise ValueError(f"more than {_DEEPEST} tries in each other")
        texts, _ = _check_nested(read, longest, deepest - 1)
    else:
        texts = _texts_in_tail(tail)
    if len(linked):
        if int(targets.max()) >= len(texts) or not (chosen := texts[targets.astype(np.int64)]).all():
            raise ValueError("a link leads nowhere")
        sizes[linked] = chosen
    _check_cache(read.vector("<u4", 3).reshape(-1, 3), parents, bases, linked, targets, outermost)
    if read.number("<u4") != np.count_nonzero(parents[1:] == 0):
        raise ValueError("the root has another number of children")
    read.number("<u4")  # flags, which no walk uses; the library refuses those it does not know
    return _lengths(parents, sizes, longest), terminals[:-1]


def _parents(louds: NDArray[np.bool_], nodes: int) -> NDArray[np.int64]:
    """The parent of each node, -1 for the root; a parent comes before its children."""
    parents = np.flatnonzero(louds)
    if len(parents) != nodes:
        raise ValueError("not a tree: as many ones as nodes are expected")
    numbers = np.arange(nodes)
    parents -= numbers
    parents -= 1
    if parents[0] != -1 or (parents[1:] < 0).any() or (parents[1:] >= numbers[1:]).any():
        raise ValueError("not a tree: a node comes before its parent")
    return parents


def _texts_in_tail(tail: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The length of the string that begins at each byte, up to the next NUL."""
    if not len(tail):
        return np.zeros(0, np.int64)
    if tail[-1]:
        raise ValueError("the last string does not end")
    ends = np.flatnonzero(tail == 0)
    places = np.arange(len(tail))
    return ends[np.searchsorted(ends, places)] - places


def _check_cache(
    cache: NDArray[np.uint32],
    parents: NDArray[np.int64],
    bases: NDArray[np.uint8],
    linked: NDArray[np.int64],
    targets: NDArray[np.uint64],
    outermost: bool,
) -> None:
    """Check that every cached edge is one of the tree, with its label."""
    size = len(cache)
    if size & (size - 1) or size < (_SMALLEST_CACHE if outermost else 1):
        raise ValueError(f"a cache of {size} edges")
    used = cache[(cache[:, :2] != _NOTHING).any(axis=1)].astype(np.int64)
    parent, child, link = used.T
    if ((child < 1) | (child >= len(parents))).any() or (parents[child] != parent).any():
        raise ValueError("a cached edge is not in the tree")
    expected = bases[child] | np.int64(_NO_LINK)
    place = np.searchsorted(linked, child)
    is_link = np.append(linked, -1)[place] == child
    expected[is_link] = targets[place[is_link]]
    if (link != expected).any():
        raise ValueError("a cached edge has another label than the tree")


def _lengths(parents: NDArray[np.int64], sizes: NDArray[np.int64], longest: int) -> NDArray[np.int64]:
    """The length of the text from the root to each node."""
    begin, end = 0, 1
    while end < len(parents):
        begin, end = end, int(np.searchsorted(parents, end))
        sizes[begin:end] += sizes[parents[begin:end]]
        if int(sizes[begin:end].max()) > longest:
            raise ValueError(f"a key is longer than {longest} bytes")
    return sizes
