"""marisa-trie files taken apart and put together again, so that changed ones keep right sizes and indexes.

The slow twin of what `check_trie` computes again: indexes are built bit by bit, as the library builds them.
"""

import random
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spectool.tests.artifacts.hostile import MUTATORS

HEADER = b"We love Marisa.\0"


@dataclass
class TrieFile:
    """One trie and those in it."""

    louds: list[int]
    terminals: list[int]
    links: list[int]
    bases: bytearray
    extras: list[int]
    tail: bytearray
    inner: "TrieFile | None"
    cache: list[list[int]]
    children: int
    flags: int
    width: int = field(default=-1)  # bits of each of the extras; as many as they need


def parse(data: bytes) -> TrieFile:
    """Take a right file apart."""
    place = len(HEADER)

    def number(kind: str) -> int:
        nonlocal place
        (value,) = struct.unpack_from(kind, data, place)
        place += struct.calcsize(kind)
        return int(value)

    def vector(kind: str) -> Any:
        nonlocal place
        size = number("<Q")
        content = np.frombuffer(data, kind, size // np.dtype(kind).itemsize, place)
        place += size + -size % 8
        return content

    def bits() -> list[int]:
        units, size, _ = vector("<u8"), number("<I"), number("<I")
        for _ in range(3):
            vector("<u4")
        return [int(units[i // 64]) >> i % 64 & 1 for i in range(size)]

    def trie() -> TrieFile:
        louds, terminals, links, bases = bits(), bits(), bits(), bytearray(vector("u1").tobytes())
        units, width, _, size = vector("<u8"), number("<I"), number("<I"), number("<Q")
        whole = sum(int(unit) << 64 * i for i, unit in enumerate(units))
        extras = [whole >> i * width & ((1 << width) - 1) for i in range(size)]
        tail = bytearray(vector("u1").tobytes())
        bits()
        inner = trie() if any(links) and not tail else None
        cache = vector("<u4").reshape(-1, 3).tolist()
        return TrieFile(louds, terminals, links, bases, extras, tail, inner, cache, number("<I"), number("<I"))

    return trie()


def serialise(whole: TrieFile) -> bytes:
    """Put a trie together, right or wrong, with sizes and indexes that fit."""
    out = bytearray(HEADER)

    def vector(content: bytes) -> None:
        out.extend(struct.pack("<Q", len(content)) + content + bytes(-len(content) % 8))

    def bits(values: list[int], zeros: bool = False, ones: bool = False, built: bool = True) -> None:
        size = len(values)
        units = [sum(bit << i for i, bit in enumerate(values[at : at + 64])) for at in range(0, size, 64)]
        vector(struct.pack(f"<{len(units)}Q", *units))
        out.extend(struct.pack("<II", size, sum(values)))
        ranks = bytearray()
        before = 0
        for at in range(0, size, 512):
            after = [sum(values[at : at + 64 * i]) for i in range(1, 8)]
            low = sum(count << shift for count, shift in zip(after[:4], (0, 7, 15, 23), strict=True))
            high = sum(count << shift for count, shift in zip(after[4:], (0, 9, 18), strict=True))
            ranks += struct.pack("<III", before, low, high)
            before += sum(values[at : at + 512])
        vector(bytes(ranks) + struct.pack("<III", before, 0, 0) if built else b"")
        for wanted, value in ((zeros, 0), (ones, 1)):
            places = [*[i for i, bit in enumerate(values) if bit == value][::512], size] if wanted else []
            vector(struct.pack(f"<{len(places)}I", *places))

    def trie(part: TrieFile, outermost: bool) -> None:
        bits(part.louds, outermost, True)
        bits(part.terminals if outermost else [], ones=outermost, built=outermost)
        bits(part.links)
        vector(bytes(part.bases))
        width = max(part.extras, default=0).bit_length() if part.width < 0 else part.width
        packed = sum(value << i * width for i, value in enumerate(part.extras))
        units = -(-width * len(part.extras) // 64) if width else min(1, len(part.extras))
        vector((packed & ((1 << 64 * units) - 1)).to_bytes(8 * units, "little"))
        out.extend(struct.pack("<IIQ", width, (1 << width) - 1, len(part.extras)))
        vector(bytes(part.tail))
        bits([], built=False)
        if part.inner:
            trie(part.inner, False)
        vector(b"".join(struct.pack("<III", *edge) for edge in part.cache))
        out.extend(struct.pack("<II", part.children, part.flags))

    trie(whole, True)
    return bytes(out)


def change(data: bytes, rng: random.Random, kind: str) -> bytes:
    """Change what a trie says, and keep its sizes and indexes right; of other arrays change any bytes."""
    if not data.startswith(HEADER):
        return rng.choice(MUTATORS)(data, rng)
    try:
        whole = parse(data)
    except (struct.error, ValueError):  # it was changed before
        return data
    for _ in range(rng.choice([1, 1, 2, 5])):
        part = whole
        while part.inner and rng.random() < 0.5:
            part = part.inner
        rng.choice(_CHANGES)(part, rng)
    return serialise(whole)


def _flip_bit(part: TrieFile, rng: random.Random) -> None:
    values = rng.choice([part.louds, part.terminals, part.links])
    if values:
        values[rng.randrange(len(values))] ^= 1


def _move_bit(part: TrieFile, rng: random.Random) -> None:
    """Keep the numbers of ones and zeros."""
    values = rng.choice([part.louds, part.louds, part.terminals, part.links])
    if values:
        place = rng.randrange(len(values))
        other = min(len(values) - 1, place + rng.choice([1, 1, 2, 8, 600]))
        values[place], values[other] = values[other], values[place]


def _change_label(part: TrieFile, rng: random.Random) -> None:
    part.bases[rng.randrange(len(part.bases))] = rng.choice([0, 1, 0x7F, 0x80, 0xC3, 0xFF, rng.randrange(256)])


def _change_link(part: TrieFile, rng: random.Random) -> None:
    if part.extras:
        part.extras[rng.randrange(len(part.extras))] = rng.choice(
            [0, 1, 2**24 - 1, rng.randrange(1 << 16), *part.extras[:5]]
        )


def _change_tail(part: TrieFile, rng: random.Random) -> None:
    if part.tail:
        place = rng.choice([rng.randrange(len(part.tail)), len(part.tail) - 1])
        part.tail[place] = rng.choice([0, 0, 1, 0xC3, rng.randrange(256)])


def _without_ends(part: TrieFile, rng: random.Random) -> None:
    """Make one long string of the tail."""
    end = len(part.tail) - 1
    part.tail[:end] = part.tail[:end].replace(b"\0", b"\1")


def _change_cache(part: TrieFile, rng: random.Random) -> None:
    if not part.cache:  # another change took all of it
        return
    edge = rng.choice(part.cache)
    nodes = len(part.bases)
    edge[rng.randrange(3)] = rng.choice([0, 1, nodes - 1, nodes, 2**32 - 1, rng.randrange(nodes), rng.getrandbits(32)])


def _move_cache(part: TrieFile, rng: random.Random) -> None:
    rng.shuffle(part.cache)


def _resize_cache(part: TrieFile, rng: random.Random) -> None:
    part.cache = rng.choice([part.cache[: len(part.cache) // 2], part.cache * 2, part.cache[:1], [], part.cache[:-1]])


def _change_numbers(part: TrieFile, rng: random.Random) -> None:
    part.children = rng.choice([0, part.children + 1, part.children - 1, 2**32 - 1]) % 2**32
    part.flags = rng.choice([part.flags, 0, 2**32 - 1, rng.getrandbits(20)])


def _change_width(part: TrieFile, rng: random.Random) -> None:
    part.width = rng.choice([0, 1, 8, 31, 32])
    part.extras = [value & ((1 << part.width) - 1) for value in part.extras]


def _drop_inner(part: TrieFile, rng: random.Random) -> None:
    """End the nesting too early, or go on where it ends."""
    if part.inner and rng.random() < 0.5:
        part.inner, part.tail = None, bytearray(b"x\0" * 40)
    elif part.inner and part.inner.inner:
        part.inner = part.inner.inner


def _add_node(part: TrieFile, rng: random.Random) -> None:
    """Add a child somewhere, or take one away, all sizes right."""
    place = rng.randrange(len(part.louds) - 2) + 1
    node = sum(part.louds[:place])
    part.louds[place:place] = [1]
    part.louds += [0]
    part.bases[node:node] = bytes([rng.randrange(256)])
    part.links[node:node] = [0]
    if part.terminals:
        part.terminals[node:node] = [rng.randrange(2)]


def _chain(part: TrieFile, rng: random.Random) -> None:
    """Make a path, or a root with nothing but children, of all nodes."""
    nodes = len(part.bases)
    path = [1, 0, *[1, 0] * (nodes - 1), 0, 0]
    part.louds = rng.choice([path, [1, 0, *[1] * (nodes - 1), *[0] * (nodes + 1)]])
    part.children = sum(part.louds[2 : part.louds.index(0, 2)])
    for edge in part.cache:
        edge[:] = [2**32 - 1, 2**32 - 1, 0]


def _without_cache(part: TrieFile, rng: random.Random) -> None:
    """Send every walk through the tree itself."""
    for edge in part.cache:
        edge[:] = [2**32 - 1, 2**32 - 1, 0]


_OFTEN = (_move_bit, _change_label, _change_link)
_OTHERS = (_flip_bit, _change_tail, _without_ends, _change_cache, _move_cache, _resize_cache, _change_numbers)
_CHANGES = (*_OFTEN, *_OFTEN, *_OTHERS, _change_width, _drop_inner, _add_node, _chain, _without_cache)
CHANGES = (change,)
