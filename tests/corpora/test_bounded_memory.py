"""Files that expand to much: read within a limit of memory, or refused by name."""

import gzip
import lzma
import subprocess
import sys
from functools import partial
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from spectool import CorpusError
from spectool.corpora import open_corpus

pytestmark = pytest.mark.nightly

READ = """
import sys
from spectool import CorpusError
from spectool.corpora import open_corpus
found = []
try:
    found = [len(document) for document in open_corpus(sys.argv[1])]
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


def test_a_parquet_file_is_read_a_few_rows_at_a_time(tmp_path: Path) -> None:
    texts = [f"{number:09}" * 10_000 for number in range(4000)]
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": texts}), path, use_dictionary=False, write_batch_size=16)
    said, most = read(path)
    assert said == "4000 360000000" and most < 220, "an interpreter and Arrow alone take 70 MB"


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_one_endless_line_is_refused(tmp_path: Path, suffix: str) -> None:
    pack = {"": bytes, ".gz": gzip.compress, ".xz": partial(lzma.compress, preset=0)}[suffix]
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack("рядок ".encode() * 6_000_000))
    said, most = read(path)
    assert "a.txt" in said and ":1: expected at most 16 MiB in one line" in said and most < 220


@pytest.mark.parametrize("name", ["a.md", "a.txt"])
def test_an_endless_document_of_many_lines_is_cut(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("перший\n\n" + "рядок з кількох слів\n" * 3_000_000 + "\n" * 30_000_000, encoding="utf-8")
    said, most = read(path)
    assert int(said.split()[1]) > 60_000_000 and most < 220


def test_lines_of_a_megabyte_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n".join(f"{number} " + "рядок " * 100_000 for number in range(10)), encoding="utf-8")
    assert len(list(open_corpus(str(path)))) == 10


def test_text_in_a_table_is_limited_like_a_line(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"text": ["а", "x" * (16 * 2**20 + 1)]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=r"a\.parquet, row 2: expected at most 16 Mi"):
        list(open_corpus(str(tmp_path / "a.parquet")))
