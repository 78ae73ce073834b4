"""llama.cpp's lookup cache: the bytes as its definition has them, and files that are none."""

import struct
from pathlib import Path

import pytest

from spectool import ArtifactError
from spectool.artifacts.llama_cpp import NO_TOKEN, check_cache_replaceable, read_cache, write_cache

NGRAMS = [((7,), {3: 5, NO_TOKEN: 2}), ((7, 8), {9: 1}), ((1, 2, 3, 4), {5: 6, 0: 7})]
RECORDS = [
    struct.pack("<4i i 4i", 7, -1, -1, -1, 2, 3, 5, -1, 2),
    struct.pack("<4i i 2i", 7, 8, -1, -1, 1, 9, 1),
    struct.pack("<4i i 4i", 1, 2, 3, 4, 2, 5, 6, 0, 7),
]


def test_the_bytes_are_those_of_the_definition(tmp_path: Path) -> None:
    path = tmp_path / "x.lookup"
    assert write_cache(path, NGRAMS) == 3
    assert path.read_bytes() == b"".join(RECORDS)
    assert list(read_cache(path)) == NGRAMS
    assert [file.name for file in tmp_path.iterdir()] == ["x.lookup"], "nothing else is left"


def test_a_file_without_ngrams(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    assert list(read_cache(tmp_path / "x")) == []


@pytest.mark.parametrize(
    "data",
    [
        b"".join(RECORDS)[:-2],
        RECORDS[1] + RECORDS[0][:16],
        RECORDS[1] + RECORDS[0][:-8],
        struct.pack("<4i i", 7, -1, -1, -1, 0),
        struct.pack("<4i i 2i", 7, -1, -1, -1, -1, 9, 1),
        struct.pack("<4i i", 7, -1, -1, -1, 2**31 - 1),
        struct.pack("<4i i 2i", 7, -1, 8, -1, 1, 9, 1),
        struct.pack("<4i i 2i", -1, -1, -1, -1, 1, 9, 1),
        struct.pack("<4i i 2i", 7, -2, -1, -1, 1, 9, 1),
        struct.pack("<4i i 2i", 7, -1, -1, -1, 1, 9, 0),
        struct.pack("<4i i 2i", 7, -1, -1, -1, 1, -5, 1),
        struct.pack("<4i i 4i", 7, -1, -1, -1, 2, 9, 1, 9, 1),
        b"GGUF" * 10,
    ],
)
def test_what_is_no_cache_is_not_replaced(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.lookup"
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match=r"x.lookup: exists and is no lookup cache .* Choose another -o"):
        check_cache_replaceable(path)
    assert path.read_bytes() == data


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be written"):
        write_cache(tmp_path / "nowhere" / "x", NGRAMS)


def test_only_a_cache_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.lookup"
    check_cache_replaceable(path)
    write_cache(path, NGRAMS)
    check_cache_replaceable(path)
    with pytest.raises(ArtifactError, match="exists and is no lookup cache"):
        check_cache_replaceable(tmp_path)


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.lookup"
    write_cache(path, NGRAMS)

    def interrupted() -> object:
        yield NGRAMS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_cache(path, interrupted())  # type: ignore[arg-type]
    assert path.read_bytes() == b"".join(RECORDS)
    assert [file.name for file in tmp_path.iterdir()] == ["x.lookup"]
