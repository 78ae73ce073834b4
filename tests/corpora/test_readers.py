"""Readers: documents and errors of plain text, JSON lines and Parquet."""

import gzip
import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from spectool import CorpusError
from spectool.corpora import Corpus, open_corpus


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path | str) -> tuple[list[str], Corpus]:
    corpus = open_corpus(str(path))
    return list(corpus), corpus


def test_plain_text_without_blank_lines_is_a_document_a_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "Перший абзац.\r\nДругий\tабзац.\nи\u0306, кінець без LF")
    documents, corpus = read(path)
    assert documents == ["Перший абзац.", "Другий\tабзац.", "й, кінець без LF"]
    assert corpus.counts.documents == 3
    assert corpus.counts.characters == sum(map(len, documents))
    assert corpus.counts.bytes_read == corpus.total_bytes == path.stat().st_size
    assert dict(corpus.counts.repaired) == {"not_nfc": 1}


def test_jsonl_columns(tmp_path: Path) -> None:
    rows = [
        {"id": "стаття", "text": "а", "title": "А"},
        {"text": "б\r\nб", "title": "Б"},
    ]
    path = write(tmp_path / "a.jsonl", "\n".join(json.dumps(row) for row in rows) + "\n\n")
    documents, _ = read(path)
    assert documents == ["а", "б\nб"]
    assert read(f"{path}#title")[0] == ["А", "Б"]
    assert next(iter(open_corpus(f"{path}#text"))) == "а"


def test_rows_without_text_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ndjson", '{"text": null}\n{"text": "є"}\n{"text": " "}\n')
    documents, corpus = read(path)
    assert documents == ["є"]
    assert dict(corpus.counts.repaired) == {"null": 2}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": oops}', r"a\.jsonl:2: expected one JSON object per line, got '\{\"text\": oops\}'"),
        ("[1]", r"a\.jsonl:2: expected one JSON object per line, got a list"),
        ('{"title": "a", "body": "b"}', r"a\.jsonl:2: expected a column 'text', found title, body"),
        ("{}", r"a\.jsonl:2: expected a column 'text', found none"),
        ('{"text": 5}', r"a\.jsonl:2: expected text in column 'text', got int"),
        ('{"text": "\\ud83d"}', r"a\.jsonl:2: expected text, got a lone surrogate"),
        ("[" * 100_000, r"a\.jsonl:2: expected one JSON object per line, got "),
        ('{"text": %s}' % ("9" * 5000), r"a\.jsonl:2: expected one JSON object per line, got "),
    ],
)
def test_jsonl_errors_name_file_and_line(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "a.jsonl", f'{{"text": "добре"}}\n{line}\n')
    with pytest.raises(CorpusError, match=message):
        read(path)


def table(path: Path, **columns: object) -> Path:
    parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
    return path


@pytest.mark.parametrize(
    "kind",
    [
        pyarrow.string(),
        pyarrow.large_string(),
        pyarrow.string_view(),
        pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
    ],
)
def test_parquet_columns(tmp_path: Path, kind: pyarrow.DataType) -> None:
    texts = pyarrow.array(["а", None, "и\u0306\0", "г", "ґ"], pyarrow.string()).cast(kind)
    path = table(tmp_path / "a.parquet", text=texts, other=[1, 2, 3, 4, 5])
    documents, corpus = read(path)
    assert documents == ["а", "й", "г", "ґ"]
    assert dict(corpus.counts.repaired) == {"null": 1, "control_characters": 1, "not_nfc": 1}
    assert corpus.counts.bytes_read == corpus.total_bytes == path.stat().st_size
    packed = write(tmp_path / "a.parquet.gz", gzip.compress(path.read_bytes()))
    with pytest.raises(CorpusError, match=r"a\.parquet\.gz: expected a whole Parquet file"):
        read(packed)


def test_large_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": [f"рядок {n}" for n in range(5000)]}), path)
    documents, _ = read(path)
    assert documents == [f"рядок {number}" for number in range(5000)]


def test_parquet_errors(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", text=["а", "б"], number=[1, 2])
    with pytest.raises(CorpusError, match=r"a\.parquet: expected a column 'body', found text, number"):
        read(f"{path}#body")
    with pytest.raises(CorpusError, match=r"a\.parquet, row 1: expected text in column 'number', got int"):
        read(f"{path}#number")
    path = table(tmp_path / "a.parquet", text=pyarrow.array([2**60], pyarrow.timestamp("ms")))
    with pytest.raises(CorpusError, match=r"a\.parquet: .* cannot be read \(.*too large"):
        read(path)
    empty = table(tmp_path / "empty.parquet", text=pyarrow.array([], pyarrow.string()))
    with pytest.raises(CorpusError, match=r"empty\.parquet: expected text, found none"):
        read(empty)


def test_damaged_parquet_is_an_error(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", text=[f"рядок {number}" for number in range(1000)])
    whole = path.read_bytes()
    for damaged in (b"", whole[:3], whole[:-1], whole[: len(whole) // 2], whole[:40] + b"\xff" * 80 + whole[120:]):
        write(path, damaged)
        with pytest.raises(CorpusError, match=r"a\.parquet: expected a whole Parquet file"):
            read(path)


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_invalid_bytes_in_parquet(tmp_path: Path, kind: str) -> None:
    raw = pyarrow.array(
        ["добре".encode(), b"\xffok", None], pyarrow.large_binary() if kind == "large_string" else pyarrow.binary()
    )
    texts = raw.view(pyarrow.large_string() if kind == "large_string" else pyarrow.string())
    path = table(tmp_path / "a.parquet", text=texts.dictionary_encode() if kind == "dictionary" else texts)
    with pytest.raises(CorpusError, match=r"a\.parquet, row 2: expected .* UTF-8.* 0xff in position 0"):
        read(path)
