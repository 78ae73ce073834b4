"""Plain text as documents: lines, lines between blank ones, or files, by what the text is."""

import gzip
from pathlib import Path

import pytest

from spectool.corpora import Corpus, open_corpus, readers


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode())
    return path


def read(path: Path) -> tuple[list[str], Corpus]:
    corpus = open_corpus(str(path))
    return list(corpus), corpus


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.txt", "а\nб\nв\n", ["а", "б", "в"]),
        ("a.txt", "а\nб\n\nв\n", ["а\nб", "в"]),
        ("a.txt", "\n\nа\nб\nв\n\n\n", ["а", "б", "в"]),  # nothing is divided by blank lines at the ends
        ("a.txt", "а\n" * 50 + "\n" + "б\n" * 40, ["\n".join("а" * 50), "\n".join("б" * 40)]),
        ("a.txt", "а\n" * 5000 + "\n" + "б\n" * 5000, ["а"] * 5000 + ["б"] * 5000),  # a stray blank line
        ("a.txt", "а\n" * 50_000 + "\nб\n" * 5000, ["а"] * 50_000 + ["б"] * 5000),  # only the beginning tells
        ("a.md", "а\n\nб\n", ["а\n\nб"]),
        ("a.md", "а\nб\n", ["а\nб"]),
        ("a.unknown", "а\n\nб\nв\n", ["а", "б\nв"]),
    ],
)
def test_the_text_decides(tmp_path: Path, name: str, text: str, expected: list[str]) -> None:
    path = write(tmp_path / name, text)
    assert read(path)[0] == expected
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read(packed)[0] == expected


def test_each_file_of_a_folder_decides_for_itself(tmp_path: Path) -> None:
    write(tmp_path / "texts" / "a.txt", "а\nб")
    write(tmp_path / "texts" / "b.txt", "в\n\nг\nґ")
    write(tmp_path / "texts" / "c.md", "# д\n\nе")
    write(tmp_path / "texts" / "README.md", "about these texts")
    found, corpus = read(tmp_path / "texts")
    assert found == ["а", "б", "в", "г\nґ", "# д\n\nе"]
    assert [file["name"] for file in corpus.describe_inputs()] == ["a.txt", "b.txt", "c.md"]
    assert read(tmp_path / "texts" / "README.md")[0] == ["about these texts"]


def test_rows_of_tables_keep_their_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "а\\n\\nб"}\n\n{"text": "в"}\n')
    assert read(path)[0] == ["а\n\nб", "в"]


def test_a_long_document_is_cut_at_a_line_end_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "LONGEST_DOCUMENT", 9)
    path = write(tmp_path / "a.md", "абв\n\nгґд\nеєж\nдовгий рядок\nз\n")
    found, corpus = read(path)
    assert found == ["абв\n\nгґд", "еєж", "довгий рядок", "з"]
    assert corpus.counts.repaired == {"cut_documents": 3}
    assert "\n".join(found).split() == path.read_text(encoding="utf-8").split()
