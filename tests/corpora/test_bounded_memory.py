"""Small files that expand to much: read within a limit of memory, or refused by name."""

import gzip
import lzma
import struct
import subprocess
import sys
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from spectool import CorpusError
from spectool.corpora import open_corpus
from spectool.corpora.parquet import largest_page, row_groups

pytestmark = pytest.mark.system

MEGABYTES = 220  # with an interpreter and Arrow, which take 70

READ = """
import sys
from spectool import CorpusError
from spectool.corpora import open_corpus
found = []
try:
    found = [len(document.text) for document in open_corpus(sys.argv[1])]
except CorpusError as error:
    print(error)
print(len(found), sum(found))
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def read(path: Path) -> tuple[str, int]:
    """Read a corpus in a process of its own; return what it says, and the most memory that it had, in megabytes."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux to ask for the memory")
    run = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    *said, most = run.stdout.strip().split("\n")
    return "\n".join(said), int(most) // 1000


def write(path: Path, texts: list[str], **how: Any) -> Path:
    parquet.write_table(pyarrow.table({"text": texts}), path, compression="zstd", **how)
    return path


def test_a_value_that_is_repeated_in_parquet_is_held_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", ["a" * 3_000_000] * 40)
    assert path.stat().st_size < 10_000
    said, most = read(path)
    assert said == "40 120000000" and most < MEGABYTES


def test_values_that_share_beginnings_in_parquet_are_held_a_few_at_a_time(tmp_path: Path) -> None:
    texts = [f"{'a' * 4_000_000}{number:02}" for number in range(40)]
    encoded = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    path = write(tmp_path / "a.parquet", texts, **encoded)
    assert path.stat().st_size < 10_000
    said, most = read(path)
    assert said == "40 160000080" and most < MEGABYTES


def test_pages_above_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(
        tmp_path / "a.parquet", [f"{'a' * 1_000_000}{number:02}" for number in range(20)], use_dictionary=False
    )
    assert len(list(open_corpus(str(path)))) == 20
    monkeypatch.setattr("spectool.corpora.parquet.LARGEST_PAGE", 16 * 2**20)
    with pytest.raises(CorpusError, match=r"a\.parquet: expected pages of at most 16 MiB, got one that takes 19 MiB"):
        list(open_corpus(str(path)))


def test_a_long_id_in_parquet_is_bounded_as_well(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["а"] * 500, "id": ["x" * 1_000_000] * 500}), path, compression="zstd")
    said, most = read(path)
    assert ("expected pages" in said or said == "500 500") and most < MEGABYTES


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_one_endless_line_is_refused(tmp_path: Path, suffix: str) -> None:
    pack = {"": bytes, ".gz": gzip.compress, ".xz": partial(lzma.compress, preset=0)}[suffix]
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack("рядок ".encode() * 6_000_000))
    said, most = read(path)
    assert "a.txt" in said and ":1: expected at most 16 MiB in one line or text" in said and most < 150


def test_lines_of_a_megabyte_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n".join(f"{number} " + "рядок " * 100_000 for number in range(10)), encoding="utf-8")
    assert len(list(open_corpus(str(path)))) == 10


def test_json_of_many_small_objects_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "а", "x": [' + '{"a":1},' * 1_500_000 + "1]}\n", encoding="utf-8")
    said, most = read(path)
    assert "a.jsonl:1: expected a JSON object with a text, got one with more than 500,000" in said and most < 150


def test_text_in_a_table_is_limited_like_a_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", ["а", "x" * (16 * 2**20 + 1)])
    with pytest.raises(CorpusError, match=r"a\.parquet, row 2: expected at most 16 MiB"):
        list(open_corpus(str(path)))


def test_an_xz_archive_that_declares_a_huge_window_is_refused(tmp_path: Path) -> None:
    raw = bytearray(lzma.compress("рядок\n".encode(), filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]))
    raw[raw.index(b"\x21\x01", 12) + 2] = 39  # 3 GiB; the header's checksum follows
    end = 12 + (raw[12] + 1) * 4
    raw[end - 4 : end] = struct.pack("<I", zlib.crc32(bytes(raw[12 : end - 4])))
    (tmp_path / "a.txt.xz").write_bytes(raw)
    with pytest.raises(CorpusError, match=r"expected a \.xz archive that 128 MiB of memory can decompress"):
        list(open_corpus(str(tmp_path / "a.txt.xz")))


def test_an_archived_table_must_not_fill_the_disk(tmp_path: Path) -> None:
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(bytes(200_000_000)))
    with pytest.raises(CorpusError, match=r"a\.parquet\.gz: expected at most 86,\d+,\d+ bytes in an archive of 194,"):
        list(open_corpus(str(tmp_path / "a.parquet.gz")))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_page_headers_are_followed(tmp_path: Path, version: str, dictionary: bool) -> None:
    texts = [f"{number:06}" * 10 for number in range(20_000)]
    path = write(
        tmp_path / "a.parquet", texts, use_dictionary=dictionary, data_page_version=version, data_page_size=50_000
    )
    with path.open("rb") as stream:
        ((column,),) = ([chunk[3] for chunk in group[1]] for group in row_groups(stream))
        assert 40_000 < largest_page(stream, column) < 1_500_000


def test_headers_that_are_none_are_damage(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", ["рядок"] * 100)
    raw = bytearray(path.read_bytes())
    for first in (*range(4, 40), *range(len(raw) - 400, len(raw), 9)):
        for value in (0, 0x15, 0x1C, 0x19, 0x7F, 0xFF):
            hit = raw.copy()
            hit[first] = value
            path.write_bytes(hit)
            try:
                assert len(list(open_corpus(str(path)))) <= 100
            except CorpusError as error:
                assert "a.parquet" in str(error)
