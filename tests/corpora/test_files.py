"""Archives: every cut and every flipped byte is noticed, members may follow one another."""

import bz2
import gc
import gzip
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest

from spectool import CorpusError
from spectool.corpora import open_corpus
from spectool.corpora.files import InputFile, opened


def zstandard(raw: bytes) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(raw)
    return bytes(sink.getvalue())


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard,
    ".bz2": bz2.compress,
}
archive = pytest.mark.parametrize("suffix", list(COMPRESS))

_random = random.Random(20240101)
TEXT = "".join(f"рядок {number}: {_random.random()}\n" for number in range(200)).encode()


def read(path: Path) -> bytes:
    with opened(InputFile.at(path, path.name)) as (_, content):
        return content.read()


@archive
def test_whole_archives_and_members_after_one_another(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](TEXT))
    assert read(path) == TEXT
    path.write_bytes(COMPRESS[suffix](TEXT) + COMPRESS[suffix](b"") + COMPRESS[suffix]("ще\n".encode()))
    assert read(path) == TEXT + "ще\n".encode()


@archive
def test_every_truncation_is_an_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    whole = COMPRESS[suffix](TEXT)
    for kept in [1, 2, 5, 11, *range(12, len(whole), 101), *range(len(whole) - 40, len(whole))]:
        path.write_bytes(whole[:kept])
        with pytest.raises(CorpusError, match=rf"a\.txt{suffix}: expected a (whole )?{suffix} archive"):
            read(path)


@archive
def test_a_truncated_last_member_is_an_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    whole = COMPRESS[suffix](TEXT)
    for kept in [1, 2, 5, 11, 20, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole + whole[:kept])
        with pytest.raises(CorpusError, match=r"is damaged or"):
            read(path)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_flipped_byte_is_an_error(tmp_path: Path, suffix: str) -> None:
    # pyarrow writes no checksum into .zst, so nothing could be noticed there.
    path = tmp_path / f"a.txt{suffix}"
    whole = bytearray(COMPRESS[suffix](TEXT))
    for place in range(len(whole) // 4, len(whole), 97):
        flipped = whole.copy()
        flipped[place] ^= 0x55
        path.write_bytes(flipped)
        with pytest.raises(CorpusError, match=r"breaks off, is damaged or"):
            read(path)


@archive
def test_another_format_under_the_suffix_is_an_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(TEXT)
    with pytest.raises(CorpusError, match=rf"expected a whole {suffix} archive.* is damaged or .*rename it"):
        read(path)


def test_a_long_window_is_to_be_unpacked(tmp_path: Path) -> None:
    """A frame with a window of 2^28 bytes, which the library does not unpack, in a block that is not compressed."""
    path = tmp_path / "a b.txt.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00\x90" + (len(TEXT) << 3 | 1).to_bytes(3, "little") + TEXT)
    with pytest.raises(CorpusError, match=r"needs another program \(.* too much memory.*unpack it"):
        list(open_corpus(str(path)))


@archive
def test_progress_ends_at_the_size_on_disk(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](TEXT * 60))
    corpus = open_corpus(str(path))
    seen = []
    for _ in corpus:
        seen.append(corpus.counts.bytes_read)
    assert seen == sorted(seen)
    assert 0 < seen[0] <= corpus.counts.bytes_read == corpus.total_bytes == path.stat().st_size


@archive
def test_nothing_is_written_about_an_archive_that_is_read_in_part(
    tmp_path: Path, suffix: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](TEXT * 80))
    assert next(iter(open_corpus(str(path)))).startswith("рядок 0")
    assert len(list(open_corpus(str(path)))) == 16_000
    gc.collect()
    assert capfd.readouterr() == ("", "")
