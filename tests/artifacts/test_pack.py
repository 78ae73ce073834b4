"""The pack format: what is written is read, and what is damaged is named."""

import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from spectool import ArtifactError
from spectool.artifacts.pack import _LZMA, Order, Pack, pack_arrays

from .parts import Parts, edit

PIECES = [" a", " b", "c"]
ORDERS = [
    Order(np.array([0, 0, 0]), np.array([1, 2, 3]), np.array([200, 100, 3]), np.array([0, 0, 0])),
    Order(np.array([0, 0, 1]), np.array([1, 2, 1]), np.array([20, 10, 3]), np.array([0, 1, 0])),
    Order(np.array([0, 1]), np.array([2, 1]), np.array([2, 3]), np.array([1, 2])),
]
"""a a, a b, b a; a a b, a b a."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    arrays, shape = pack_arrays(PIECES, ORDERS, 400)
    Pack.write(tmp_path / "x.pack", arrays, arguments={}, tokenizers={}, inputs={}, statistics=shape)
    return tmp_path / "x.pack"


def unpacked(raw: bytes) -> bytes:
    return lzma.decompress(raw, lzma.FORMAT_RAW, filters=_LZMA)


def packed(raw: bytes) -> bytes:
    return lzma.compress(raw, lzma.FORMAT_RAW, filters=_LZMA)


def test_what_is_written_is_read(path: Path) -> None:
    pack = Pack(path)
    assert list(pack.pieces) == PIECES and len(pack) == 8
    for found, expected in zip(pack.orders, ORDERS, strict=True):
        for name in ("prefix", "suffix", "symbol"):
            assert getattr(found, name).tolist() == getattr(expected, name).tolist()
        assert found.count == pytest.approx(expected.count, rel=0.1)


@pytest.mark.parametrize(
    ("array", "change", "problem"),
    [
        ("pieces", lambda raw: raw.replace(b"c", b"\xff"), "decode"),
        ("pieces", lambda raw: raw + b"d\0", "expected 3"),
        ("pieces", lambda raw: raw + b"d", "expected 3"),
        ("pieces", lambda raw: raw.replace(b"c\0", b" a\0"), "repeats"),
        ("pieces", lambda raw: raw.replace(b"c", b"c" * 65), "too long"),
        ("counts", lambda raw: raw[:-1], "expected 8"),
        ("counts", lambda raw: b"\xff" + raw[1:], "too large"),
        ("counts", lambda raw: raw[:4] + raw[:1] + raw[5:], "more often"),  # a b than b
        ("counts", lambda raw: raw[:5] + raw[:1] + raw[6:], "more often"),  # b a than b
        ("followers", lambda raw: b"\x09" + raw[1:], "n-grams"),
        ("followers", lambda raw: raw[:-1] + b"\x80", "expected 6"),
        ("places", lambda raw: b"\x03" + raw[1:], "order before"),
        ("places", lambda raw: b"\x80" * 9 + raw, "too large"),
        ("places", lambda raw: bytes(1 << 20), "more than there can be"),
    ],
)
def test_what_is_wrong_is_named(path: Path, array: str, change: Callable[[bytes], bytes], problem: str) -> None:
    def changed(parts: Parts) -> None:
        kind, data = parts.arrays[array]
        parts.arrays[array] = kind, packed(change(unpacked(data)))

    edit(path, changed)
    with pytest.raises(ArtifactError, match=rf"{array}.*{problem}"):
        Pack(path)


def test_pieces_are_counted_before_each_is_an_object(path: Path) -> None:
    def changed(parts: Parts) -> None:
        parts.manifest["statistics"]["ngrams"] = [4_000]
        parts.set("pieces", np.frombuffer(packed(b"ab\0" * 700_000), np.uint8))
        parts.set("more", np.random.default_rng(0).integers(256, size=40_000), "uint8")  # which allow for as many bytes

    edit(path, changed)
    tracemalloc.start()
    with pytest.raises(ArtifactError, match=r"pieces: 700,000.*, expected 4,000"):
        Pack(path)
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()
