"""Text in other encodings than UTF-8: refused, with the command that converts it."""

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from spectool import CorpusError
from spectool.corpora import open_corpus

POLISH = "Książka, którą mam, jest żółta.\nWłaśnie ją czytałem: „Gęś”.\n"
UKRAINIAN = "Моя книжка лежить на столі.\nЇї читає сестра з Києва.\n"
CODECS = [
    (POLISH, "cp1250"),
    (UKRAINIAN, "koi8-u"),
    (UKRAINIAN, "cp1251"),
    ("Der Bär läuft über die Straße, größer als früher.\n", "cp1252"),
]


def texts(path: Path) -> list[str]:
    return list(open_corpus(str(path)))


def converted(path: Path, message: str) -> list[str]:
    """The text of a file after the first command of an error, which is run."""
    if shutil.which("iconv") is None:
        pytest.skip("needs iconv")
    command = message.partition("convert it: ")[2].partition(". To drop")[0]
    new = path.with_name("new.txt")
    subprocess.run(command.replace("FILE", str(path)).replace("NEW", str(new)), shell=True, check=True)
    return texts(new)


@pytest.mark.parametrize(("text", "encoding"), CODECS)
def test_a_file_in_another_encoding_is_refused_with_line_and_bytes(tmp_path: Path, text: str, encoding: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"plain\n" + text.encode(encoding))
    with pytest.raises(
        CorpusError, match=r"a\.txt:2: expected UTF-8, got the bytes \w\w.* iconv -f CP1250 -t UTF-8 FILE > NEW"
    ) as refused:
        texts(path)
    if encoding == "cp1250":
        assert converted(path, str(refused.value)) == ["plain", *text.splitlines()]


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("text", [POLISH, UKRAINIAN])
def test_a_mark_of_an_encoding_names_it(tmp_path: Path, size: int, big: bool, text: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(("\ufeff" + text).encode(f"utf-{size}-{'be' if big else 'le'}"))
    with pytest.raises(
        CorpusError, match=rf"a\.txt:1: expected UTF-8, got the bytes .*iconv -f UTF-{size} -t UTF-8"
    ) as refused:
        texts(path)
    assert converted(path, str(refused.value)) == text.splitlines()


@pytest.mark.parametrize("encoding", ["UTF-16BE", "UTF-16LE"])
def test_zero_bytes_without_a_mark_say_which_utf_16_it_is(tmp_path: Path, encoding: str) -> None:
    path, text = tmp_path / "a.txt", "Ala\nma kota.\n" * 9
    path.write_bytes(text.encode(encoding))
    with pytest.raises(CorpusError, match=f"got zero bytes.* -f {encoding} ") as refused:
        texts(path)
    assert converted(path, str(refused.value)) == text.splitlines()


def test_characters_may_lie_across_pieces_of_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(("a" + "あい" * 400_000 + "\nкінець").encode()))
    assert texts(path) == ["a" + "あい" * 400_000, "кінець"]


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for content in (gzip.compress(POLISH.encode()), b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\n", b"\x00\x01" * 99):
        path.write_bytes(content)
        with pytest.raises(CorpusError, match=r"a\.txt:\d: expected UTF-8, got (zero bytes|the bytes \w\w)"):
            texts(path)
