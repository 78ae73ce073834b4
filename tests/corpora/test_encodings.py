"""Other encodings than UTF-8: read when they are named or marked, and refused otherwise."""

import codecs
import gzip
import json
from pathlib import Path

import pytest

from spectool import CorpusError
from spectool.corpora import open_corpus
from spectool.corpora.encodings import known_encoding

POLISH = "Książka, którą mam, jest żółta.\nWłaśnie ją czytałem: „Gęś”.\n"
UKRAINIAN = "Моя книжка лежить на столі.\nЇї читає сестра з Києва.\n"
TATAR = "Bu kitapnı qırımtatarlar içün yazğanlar.\nÖzü şeerde yaşay.\n"
CODECS = [
    (POLISH, "cp1250"),
    (POLISH.replace("„", '"').replace("”", '"'), "iso-8859-2"),
    (UKRAINIAN, "cp1251"),
    (UKRAINIAN, "koi8-u"),
    (UKRAINIAN, "iso-8859-5"),
    (UKRAINIAN.replace("і", "и").replace("І", "И"), "cp866"),
    (TATAR, "cp1254"),
    ("Der Bär läuft über die Straße, größer als früher.\n", "cp1252"),
]


def texts(path: Path, **how: str) -> list[str]:
    return [document.text for document in open_corpus(str(path), **how)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "encoding"), CODECS)
def test_a_file_in_another_encoding_is_refused_and_read_when_it_is_named(
    tmp_path: Path, text: str, encoding: str
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"plain\n" + text.encode(encoding))
    with pytest.raises(CorpusError, match=r"a\.txt:2: expected utf-8, got the bytes \w\w.* such as --encoding cp1250"):
        texts(path)
    assert texts(path, encoding=encoding) == ["plain", *text.splitlines()]


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("big", [False, True])
def test_a_byte_order_mark_decides(tmp_path: Path, codec: str, big: bool) -> None:
    path = tmp_path / "a.txt"
    raw = ("\ufeff" + UKRAINIAN).encode(f"{codec}-be") if big and codec != "utf-8-sig" else UKRAINIAN.encode(codec)
    path.write_bytes(raw)
    assert texts(path) == UKRAINIAN.splitlines()
    for name in (codec, "cp1251"):
        assert texts(path, encoding=name) == UKRAINIAN.splitlines()


@pytest.mark.parametrize("text", [POLISH * 20, UKRAINIAN * 20])
@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark_is_read_by_name(tmp_path: Path, text: str, codec: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(codec))
    for how in ({}, {"encoding": "cp1250"}):
        with pytest.raises(CorpusError, match=r"a\.txt:\d: expected .*--encoding"):
            texts(path, **how)
    with pytest.raises(CorpusError, match=rf"expected utf-16, got no byte order mark.*{codec}"):
        texts(path, encoding="utf-16")
    assert texts(path, encoding=codec) == text.splitlines()


def test_a_wrong_encoding_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("добре\nЃ".encode("cp1251"))  # 0x81 is no character of cp1250
    with pytest.raises(CorpusError, match=r"a\.txt:2: expected cp1250, got the bytes 81\."):
        texts(path, encoding="cp1250")
    path.write_bytes(UKRAINIAN.encode())
    with pytest.raises(CorpusError, match=r"expected cp1251, got UTF-8. Leave out --encoding cp1251"):
        texts(path, encoding="cp1251")
    path.write_bytes("ціле\nполе".encode("utf-16-be") + b"\x00")
    with pytest.raises(CorpusError, match=r"a\.txt:2: expected utf-16-be, got the bytes 00"):
        texts(path, encoding="utf-16-be")


def test_characters_may_lie_across_pieces_and_archives_are_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    text = "あい" * 400_000 + "\nкінець"
    path.write_bytes(gzip.compress(("a" + text).encode("shift_jis", "ignore")))
    assert texts(path, encoding="shift_jis")[0] == "a" + "あい" * 400_000


def test_encodings_by_name() -> None:
    assert (known_encoding(None), known_encoding("UTF-8"), known_encoding("utf_8_sig")) == (None, None, None)
    assert (known_encoding("Windows-1251"), known_encoding("latin2")) == ("cp1251", "iso8859-2")
    with pytest.raises(CorpusError, match=r"kp1250: expected the name of a text encoding.*such as cp1250"):
        open_corpus("sample:pl", encoding="kp1250")
    for name in ("rot13", "base64", "undefined", "x\0y", ""):
        with pytest.raises(CorpusError, match="expected the name of a text encoding"):
            known_encoding(name)
    with pytest.raises(CorpusError, match=r"hf:a/b: expected no encoding for a data set"):
        open_corpus("hf:a/b", encoding="cp1250")


def test_tables_in_another_encoding(tmp_path: Path) -> None:
    lines = tmp_path / "a.jsonl"
    lines.write_bytes(json.dumps({"text": POLISH}, ensure_ascii=False).encode("cp1250"))
    assert texts(lines, encoding="cp1250") == [POLISH]


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for content in (gzip.compress(POLISH.encode()), b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\n", b"\x00\x01" * 99):
        path.write_bytes(content)
        with pytest.raises(CorpusError, match=r"a\.txt:\d: expected utf-8, got (zero bytes|the bytes \w\w)"):
            texts(path)


def test_a_mark_alone_is_no_text(tmp_path: Path) -> None:
    for mark in (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF32_BE, b""):
        (tmp_path / "a.txt").write_bytes(mark)
        with pytest.raises(CorpusError, match="expected text, found none"):
            texts(tmp_path / "a.txt")
