"""Sources: what a spec stands for, folders, and errors that say what to do."""

import hashlib
import os
import unicodedata
from pathlib import Path
from unittest.mock import Mock

import pytest

from spectool import CorpusError
from spectool.corpora import open_corpus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    for name, content in {
        "b.txt": "б\n",
        "a/z.jsonl": '{"text": "з", "title": "З"}\n',
        "a/note.rst": "не корпус",
        ".hidden.txt": "ні",
        ".git/x.txt": "ні",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return folder


def test_a_folder_is_read_in_order_without_hidden_and_unknown_files(folder: Path) -> None:
    corpus = open_corpus(str(folder))
    assert list(corpus) == ["з", "б"]
    assert list(open_corpus(f"{folder}#title")) == ["З", "б"]


def test_a_corpus_can_be_read_again(folder: Path) -> None:
    corpus = open_corpus(str(folder))
    first, counts = list(corpus), corpus.counts
    assert list(corpus) == first
    assert corpus.counts == counts
    assert corpus.counts is not counts
    assert corpus.total_bytes == corpus.counts.bytes_read == sum(item["size"] for item in corpus.describe_inputs())


def test_inputs_are_described_by_relative_name_size_and_hash(folder: Path) -> None:
    raw = (folder / "b.txt").read_bytes()
    described = open_corpus(str(folder)).describe_inputs()
    assert [item["name"] for item in described] == ["a/z.jsonl", "b.txt"]
    expected = {"name": "b.txt", "size": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    assert described[1] == expected
    assert open_corpus(str(folder / "b.txt")).describe_inputs() == [expected]


def test_an_input_that_vanished_is_an_error(folder: Path) -> None:
    corpus = open_corpus(str(folder))
    (folder / "b.txt").unlink()
    with pytest.raises(CorpusError, match=r"b\.txt: cannot be read \(No such file"):
        corpus.describe_inputs()
    with pytest.raises(CorpusError, match=r"b\.txt: cannot be read \(No such file"):
        list(corpus)


def test_empty_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("текст")
    (tmp_path / "b.txt").write_text("")
    (tmp_path / "c.jsonl").write_text("\n")
    corpus = open_corpus(str(tmp_path))
    assert list(corpus) == ["текст"]
    assert not corpus.counts.repaired
    for content in ("", "\ufeff"):
        (tmp_path / "b.txt").write_text(content, encoding="utf-8")
        with pytest.raises(CorpusError, match=r"b\.txt: expected text, found none"):
            list(open_corpus(str(tmp_path / "b.txt")))
    (tmp_path / "a.txt").write_text(" \n")
    with pytest.raises(CorpusError, match="expected text, found none"):
        list(open_corpus(str(tmp_path)))


@pytest.mark.parametrize("name", ["a.json", "a.zip", "a.tar.gz", "a.csv", "a.tsv", "a.pdf"])
def test_formats_that_are_not_read_say_what_to_do(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(CorpusError, match=r"expected plain text or .*\. (Write|Unpack|Extract)"):
        open_corpus(str(tmp_path / name))


def test_a_hash_may_be_part_of_a_file_name(tmp_path: Path) -> None:
    (tmp_path / "c#.txt").write_text("дієз")
    assert list(open_corpus(str(tmp_path / "c#.txt"))) == ["дієз"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("sample:de", r"^sample:de: no such sample\. Bundled are .*sample:pl.*sample:uk"),
        ("nowhere/a.txt", r"nowhere/a\.txt: expected a file.* Bundled are sample:pl, sample:uk$"),
        ("~nobody/a.txt", r"~nobody/a\.txt: expected a file"),
        ("", "'': expected the name of a file or a folder"),
        ("-", "'-': expected the name of a file or a folder"),
        ("link.txt", r"link\.txt: expected a file.*found nothing of that name"),
        ("b.txt#", r"^b\.txt#: expected a file.*found nothing of that name"),
        ("текст " * 100, r"cannot be read \(File name too long\)"),
    ],
)
def test_what_is_not_there_is_an_error_with_a_next_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch, spec: str, said: str
) -> None:
    (folder / "link.txt").symlink_to("gone.txt")
    monkeypatch.chdir(folder)
    with pytest.raises(CorpusError, match=said):
        open_corpus(spec)


def test_a_pipe_cannot_be_read_twice(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorpusError, match="pipe: expected a file, got a pipe or device"):
        open_corpus(str(tmp_path / "pipe"))


def test_real_corpora_are_clean_and_complete(shared: Path) -> None:
    corpus = open_corpus(str(shared / "corpora" / "crh.train.txt.zst"))
    documents = list(corpus)
    assert len(documents) == corpus.counts.documents > 1000
    assert all(unicodedata.is_normalized("NFC", document) for document in documents)
    assert corpus.counts.bytes_read == corpus.total_bytes
    prompts = open_corpus(f"{shared / 'corpora' / 'prompts_uk.jsonl.zst'}#instruction")
    assert sum(1 for _ in prompts) == 4545


def test_files_of_a_folder_that_are_not_read_are_counted(folder: Path) -> None:
    for name in ("README.md", "a/README.md", "a/more.RST", "a/other.rst", "notes", "scan.pdf.gz"):
        (folder / name).write_text("не корпус")
    assert open_corpus(str(folder)).left_out == {"README.md": 2, ".rst": 3, "notes": 1, ".pdf": 1}
    assert not open_corpus(str(folder / "b.txt")).left_out


def test_folders_that_are_links_or_closed_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "more").symlink_to(folder / "a")
    (folder / ".more").symlink_to(folder / "a")
    (folder / "closed").mkdir()
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != "closed")  # root may read everything
    assert open_corpus(str(folder)).left_out == {".rst": 1, "more/": 1, "closed/": 1}
    monkeypatch.setattr("os.scandir", Mock(side_effect=PermissionError(1, "Operation not permitted")))
    with pytest.raises(CorpusError, match=r"texts: cannot be read \(Operation not permitted\)"):
        open_corpus(str(folder))
