"""Files that change while they are read: no corpus is described by the hash of another text."""

import gzip
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from spectool import CorpusError
from spectool.corpora import open_corpus

BEFORE, AFTER = "старе слово\n", "інше слово!\n"
LINES = 100_000  # several pieces of 1 MiB


def write_text(path: Path, line: str) -> None:
    path.write_text(line * LINES, encoding="utf-8")


def write_gzip(path: Path, line: str) -> None:
    path.write_bytes(gzip.compress("".join(f"{n} {line}" for n in range(LINES)).encode(), 1))


def write_parquet(path: Path, line: str) -> None:
    parquet.write_table(pyarrow.table({"text": [f"{n} {line.strip()}" for n in range(LINES)]}), path)


def overwrite(path: Path, write: Callable[[Path, str], None]) -> None:
    write(path, AFTER)


def replace(path: Path, write: Callable[[Path, str], None]) -> None:
    other = path.with_name(f"other{''.join(path.suffixes)}")
    write(other, AFTER)
    other.replace(path)


def keep_the_time(path: Path, write: Callable[[Path, str], None]) -> None:
    found = path.stat()
    write(path, AFTER)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


changes = pytest.mark.parametrize("change", [overwrite, replace, keep_the_time])
kinds = pytest.mark.parametrize(
    ("name", "write"), [("a.txt", write_text), ("a.txt.gz", write_gzip), ("a.parquet", write_parquet)]
)


@changes
@kinds
def test_a_change_while_a_file_is_read_is_an_error(
    tmp_path: Path,
    name: str,
    write: Callable[[Path, str], None],
    change: Callable[[Path, Callable[[Path, str], None]], None],
) -> None:
    path = tmp_path / name
    write(path, BEFORE)
    corpus = open_corpus(str(path))
    documents = iter(corpus)
    next(documents)
    change(path, write)
    with pytest.raises(CorpusError, match=r"replaced or written to|damaged|cannot be read"):
        list(documents)


@changes
@kinds
def test_the_hash_is_of_what_was_read(
    tmp_path: Path,
    name: str,
    write: Callable[[Path, str], None],
    change: Callable[[Path, Callable[[Path, str], None]], None],
) -> None:
    path = tmp_path / name
    write(path, BEFORE)
    read = hashlib.sha256(path.read_bytes()).hexdigest()
    corpus = open_corpus(str(path))
    assert sum(1 for _ in corpus) == LINES
    assert [item.sha256 for item in corpus.describe_inputs()] == [read]
    change(path, write)
    for again in (corpus.describe_inputs, lambda: list(corpus)):
        with pytest.raises(CorpusError, match=r"replaced or written to"):
            again()
    assert [item.sha256 for item in open_corpus(str(path)).describe_inputs()] != [read]


def test_a_file_that_is_described_first_must_be_the_one_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(BEFORE, encoding="utf-8")
    corpus = open_corpus(str(path))
    corpus.describe_inputs()
    replace(path, write_text)
    with pytest.raises(CorpusError, match=r"a\.txt: expected a file that does not change .*same command again"):
        list(corpus)


def test_a_data_set_in_a_folder_must_not_change(tmp_path: Path) -> None:
    path = tmp_path / "data" / "a.jsonl"
    path.parent.mkdir()
    path.write_text('{"text": "а"}\n' * 1000, encoding="utf-8")
    corpus = open_corpus(f"hf:{path.parent}")
    documents = iter(corpus)
    next(documents)
    path.write_text('{"text": "б"}\n' * 1000, encoding="utf-8")
    with pytest.raises(CorpusError, match=r"replaced or written to"):
        list(documents)
