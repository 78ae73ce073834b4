"""Data sets through `datasets`: real ones from the disk, and the failures of a hub that cannot be reached."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from spectool import CorpusError
from spectool.corpora import open_corpus
from spectool.corpora.hub import HubSource, parse_hub_source


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` takes a folder in the working directory for a data set of that name."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    folder = tmp_path / "tables"
    (folder / "data").mkdir(parents=True)
    train = {"id": ["x", "y", "z"], "text": ["а", None, "и\u0306"], "title": ["А", "Б", "В"]}
    parquet.write_table(pyarrow.table(train), folder / "data" / "train-00000-of-00001.parquet")
    test = {"id": ["t"], "text": ["тест"], "title": ["Т"]}
    parquet.write_table(pyarrow.table(test), folder / "data" / "test-00000-of-00001.parquet")
    return folder


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    folder = tmp_path / "lines"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "один", "n": 1}\n{"text": "два\\u0000", "n": 2}\n', encoding="utf-8")
    return folder


def test_parquet(tables: Path) -> None:
    corpus = open_corpus("hf:tables#text")
    assert [(document.id, document.text) for document in corpus] == [("x", "а"), ("z", "й")]
    assert dict(corpus.counts.repaired) == {"null": 1, "not_nfc": 1}
    assert (corpus.counts.documents, corpus.counts.characters, corpus.total_bytes) == (2, 2, None)
    assert corpus.describe_inputs() == []
    assert [document.text for document in corpus] == ["а", "й"]
    assert [document.text for document in open_corpus("hf:tables[test]#title")] == ["Т"]


def test_json_lines(lines: Path) -> None:
    corpus = open_corpus("hf:lines:default#text")
    assert [(document.id, document.text) for document in corpus] == [("lines:1", "один"), ("lines:2", "два")]
    assert dict(corpus.counts.repaired) == {"control_characters": 1}


def test_a_missing_column_names_those_present(lines: Path, tables: Path) -> None:
    with pytest.raises(CorpusError, match=r"lines, row 1: expected a column 'body', found text, n"):
        list(open_corpus("hf:lines#body"))
    with pytest.raises(CorpusError, match=r"tables, row 1: expected a column 'body', found id, text, title"):
        list(open_corpus("hf:tables#body"))
    with pytest.raises(CorpusError, match=r"lines, row 1: expected text in column 'n', got int"):
        list(open_corpus("hf:lines#n"))


def test_a_missing_split_or_configuration_names_what_there_is(lines: Path) -> None:
    with pytest.raises(CorpusError, match=r"lines: .*\(Bad split: test\. Available splits: \['train'\]\)"):
        list(open_corpus("hf:lines[test]"))
    with pytest.raises(CorpusError, match=r"lines: .*BuilderConfig 'uk' not found\. Available: \['default'\]"):
        list(open_corpus("hf:lines:uk"))


def test_damaged_and_empty_data_sets(lines: Path, tables: Path, tmp_path: Path) -> None:
    (lines / "a.jsonl").write_text('{"text": "один"}\n{"text": oops}\n', encoding="utf-8")
    with pytest.raises(CorpusError, match=r"lines: .*cannot be read \("):
        list(open_corpus("hf:lines"))
    damaged = tables / "data" / "train-00000-of-00001.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-30])
    with pytest.raises(CorpusError, match=r"tables: .*cannot be read \("):
        list(open_corpus("hf:tables"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match="empty: the data set cannot be read"):
        list(open_corpus("hf:empty"))


@pytest.mark.nightly
def test_an_unreachable_hub_is_one_line_with_a_next_step() -> None:
    code = (
        "from spectool import CorpusError\nfrom spectool.corpora import open_corpus\n"
        "try:\n    list(open_corpus('wiki-pl'))\nexcept CorpusError as error:\n    print(error)\n"
    )
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=offline)
    assert run.stdout.startswith("hf:wikimedia/wikipedia: the data set cannot be read (")
    assert "hf download --repo-type dataset wikimedia/wikipedia --local-dir DIR. Then name DIR" in run.stdout
    assert run.stdout.count("\n") == 1


def test_a_copy_of_a_data_set_is_read_without_hf(tables: Path) -> None:
    """As the error says that names `hf download`."""
    found = [document.text for document in open_corpus("tables#text")]
    assert found == ["тест", "а", "й"] and open_corpus("tables/data").total_bytes


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("hf:a/b", HubSource("a/b", None, "train", "text")),
        ("hf:a/b:20231101.pl#text", HubSource("a/b", "20231101.pl", "train", "text")),
        ("hf:a/b:pl[validation]#body", HubSource("a/b", "pl", "validation", "body")),
        ("hf:a/b[test]", HubSource("a/b", None, "test", "text")),
        ("hf:a/b#doc.text", HubSource("a/b", None, "train", "doc.text")),
    ],
)
def test_the_parts_of_a_source(source: str, expected: HubSource) -> None:
    assert parse_hub_source(source) == expected
