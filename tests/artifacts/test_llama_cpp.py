"""llama.cpp's lookup cache: the bytes as its definition has them, and files that are none."""

import struct
from pathlib import Path

import pytest

from spectool import ArtifactError
from spectool.artifacts.llama_cpp import NO_TOKEN, check_replaceable, read_cache, write_cache

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
    ("data", "says"),
    [
        (b"".join(RECORDS)[:-2], "at byte 96, 2 bytes too many"),
        (RECORDS[1] + RECORDS[0][:16], "at byte 28, the file ends inside an n-gram"),
        (RECORDS[1] + RECORDS[0][:-8], "at byte 44, 2 followers"),
        (struct.pack("<4i i", 7, -1, -1, -1, 0), "0 followers"),
        (struct.pack("<4i i", 7, -1, -1, -1, 2**31 - 1), "2147483647 followers"),
        (struct.pack("<4i i 2i", 7, -1, 8, -1, 1, 9, 1), "is no n-gram"),
        (struct.pack("<4i i 2i", -1, -1, -1, -1, 1, 9, 1), "is no n-gram"),
        (struct.pack("<4i i 2i", 7, -2, -1, -1, 1, 9, 1), "is no n-gram"),
        (struct.pack("<4i i 2i", 7, -1, -1, -1, 1, 9, 0), "negative id or count"),
        (struct.pack("<4i i 2i", 7, -1, -1, -1, 1, -5, 1), "negative id or count"),
        (struct.pack("<4i i 4i", 7, -1, -1, -1, 2, 9, 1, 9, 1), "a follower twice"),
        (b"GGUF" * 10, "not a lookup cache"),
    ],
)
def test_what_is_no_cache_is_refused_with_the_place(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "x.lookup"
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match=says) as raised:
        list(read_cache(path))
    assert str(path) in str(raised.value)


def test_a_missing_file_and_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be read"):
        list(read_cache(tmp_path / "nothing"))
    with pytest.raises(ArtifactError, match="cannot be written"):
        write_cache(tmp_path / "nowhere" / "x", NGRAMS)


def test_only_a_cache_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.lookup"
    check_replaceable(path)
    write_cache(path, NGRAMS)
    check_replaceable(path)
    for data in (b"# My notes\n", b"".join(RECORDS)[:-4], b"GGUF" * 10):
        path.write_bytes(data)
        with pytest.raises(ArtifactError, match=r"x.lookup: exists and is no lookup cache .* Choose another -o"):
            check_replaceable(path)
    with pytest.raises(ArtifactError, match="exists and is no lookup cache"):
        check_replaceable(tmp_path)


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
