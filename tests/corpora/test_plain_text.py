"""Plain text as documents: lines, lines between blank ones, or files, by what the text is or as asked."""

import gzip
from pathlib import Path

import pytest

from spectool import CorpusError
from spectool.corpora import Corpus, Division, open_corpus, readers

PARAGRAPHS = "Тема\r\n- раз\r\n- два\r\n\r\n \nКінець.\n\n"


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode())
    return path


def read(path: Path, documents: Division | None = None) -> tuple[list[tuple[str, str]], Corpus]:
    corpus = open_corpus(str(path), documents=documents)
    return [(document.id, document.text) for document in corpus], corpus


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ("lines", [("a.txt:1", "Тема"), ("a.txt:2", "- раз"), ("a.txt:3", "- два"), ("a.txt:6", "Кінець.")]),
        ("blank-lines", [("a.txt:1", "Тема\n- раз\n- два"), ("a.txt:6", "Кінець.")]),
        ("files", [("a.txt:1", "Тема\n- раз\n- два\n\n \nКінець.")]),
    ],
)
def test_each_division(tmp_path: Path, documents: Division, expected: list[tuple[str, str]]) -> None:
    found, corpus = read(write(tmp_path / "a.txt", PARAGRAPHS), documents)
    assert found == expected
    assert corpus.counts.plain_text == {documents: 1} and not corpus.counts.repaired


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.txt", "а\nб\nв\n", "lines"),
        ("a.txt", "а\nб\n\nв\n", "blank-lines"),
        ("a.txt", "\n\nа\nб\nв\n\n\n", "lines"),  # nothing is divided by blank lines at the ends
        ("a.txt", "а\n" * 50 + "\n" + "б\n" * 40, "blank-lines"),
        ("a.txt", "а\n" * 5000 + "\n" + "б\n" * 5000, "lines"),  # a stray blank line
        ("a.md", "а\n\nб\n", "files"),
        ("a.md", "а\n", "files"),
        ("a.unknown", "а\n\nб\n", "blank-lines"),
    ],
)
def test_by_default_the_text_decides(tmp_path: Path, name: str, text: str, expected: Division) -> None:
    path = write(tmp_path / name, text)
    found, corpus = read(path)
    assert corpus.counts.plain_text == {expected: 1}
    assert found == read(path, expected)[0]
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert [text for _, text in read(packed)[0]] == [text for _, text in found]


def test_each_file_of_a_folder_decides_for_itself(tmp_path: Path) -> None:
    write(tmp_path / "texts" / "a.txt", "а\nб")
    write(tmp_path / "texts" / "b.txt", "в\n\nг\nґ")
    write(tmp_path / "texts" / "c.md", "# д\n\nе")
    write(tmp_path / "texts" / "README.md", "about these texts")
    found, corpus = read(tmp_path / "texts")
    assert [text for _, text in found] == ["а", "б", "в", "г\nґ", "# д\n\nе"]
    assert corpus.counts.plain_text == {"lines": 1, "blank-lines": 1, "files": 1}
    assert [file.name for file in corpus.describe_inputs()] == ["a.txt", "b.txt", "c.md"]
    assert read(tmp_path / "texts" / "README.md")[0] == [("README.md:1", "about these texts")]


def test_rows_of_tables_keep_their_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "а\\n\\nб"}\n\n{"text": "в"}\n')
    for documents in (None, "lines", "blank-lines", "files"):
        found, corpus = read(path, documents)  # type: ignore[arg-type]
        assert found == [("a.jsonl:1", "а\n\nб"), ("a.jsonl:3", "в")] and not corpus.counts.plain_text


def test_a_long_document_is_cut_at_a_line_end_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "LONGEST_DOCUMENT", 9)
    path = write(tmp_path / "a.txt", "абв\n\nгґд\nеєж\nдовгий рядок\nз\n")
    found, corpus = read(path, "files")
    assert found == [("a.txt:1", "абв\n\nгґд"), ("a.txt:4", "еєж"), ("a.txt:5", "довгий рядок"), ("a.txt:6", "з")]
    assert corpus.counts.repaired == {"cut_documents": 3}
    assert "\n".join(text for _, text in found).split() == path.read_text(encoding="utf-8").split()


def test_damage_in_a_line_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes("# добре\n\nпогано \xff\n".encode("latin-1", "ignore") + b"\xff\n")
    with pytest.raises(CorpusError, match=r"a\.md:3: expected utf-8"):
        read(path)
