"""llama.cpp's lookup cache: the bytes as its definition has them, and files that are not replaced."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spectool import ArtifactError
from spectool.artifacts.llama_cpp import write_cache

from .lookup_caches import read_cache

NGRAMS = [((7,), {3: 5, 8: 2}), ((7, 8), {9: 1}), ((1, 2, 3, 4), {5: 6, 0: 7})]
RECORDS = [
    struct.pack("<4i i 4i", 7, -1, -1, -1, 2, 3, 5, 8, 2),
    struct.pack("<4i i 2i", 7, 8, -1, -1, 1, 9, 1),
    struct.pack("<4i i 4i", 1, 2, 3, 4, 2, 5, 6, 0, 7),
]


def test_the_bytes_are_those_of_the_definition(tmp_path: Path) -> None:
    path = tmp_path / "x.lookup"
    assert write_cache(path, NGRAMS) == 3
    assert path.read_bytes() == b"".join(RECORDS)
    assert list(read_cache(path)) == NGRAMS
    assert [file.name for file in tmp_path.iterdir()] == ["x.lookup"], "nothing else is left"


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be written"):
        write_cache(tmp_path / "nowhere" / "x", NGRAMS)


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_nothing_is_replaced(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "x")
    with pytest.raises(ArtifactError, match=r"x: exists and is not replaced\. Choose another name"):
        write_cache(tmp_path / "x", NGRAMS)


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> Iterator[tuple[tuple[int, ...], dict[int, int]]]:
        yield NGRAMS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_cache(tmp_path / "x.lookup", interrupted())
    assert list(tmp_path.iterdir()) == []
