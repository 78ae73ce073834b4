"""Cleaning: what is repaired silently, what stops, and what every cleaned text has in common."""

import tempfile
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectool import CorpusError
from spectool.corpora.cleaning import ReadCounts, clean, text_lines
from spectool.corpora.files import InputFile


def cleaned(text: str) -> tuple[str, dict[str, int]]:
    counts = ReadCounts()
    return clean(text, "a.jsonl:3", counts), dict(counts.repaired)


def lines_of(raw: bytes) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.txt"
        path.write_bytes(raw)
        places, lines = zip(*text_lines(InputFile.at(path, "a.txt"), ReadCounts()), strict=True)
    assert places == tuple(f"{path}:{number + 1}" for number in range(len(lines)))
    return list(lines)


@pytest.mark.parametrize(
    ("text", "expected", "repaired"),
    [
        ("цілий\tрядок\n", "цілий\tрядок\n", {}),
        ("nul\0i del\x7f i \x85 csi\x9b", "nuli del i \n csi", {"control_characters": 4}),
        ("a\r\nb", "a\nb", {}),
        ("кінець\ufeffпочаток", "кінецьпочаток", {"control_characters": 1}),
        ("старий\rмак\x0cсторінка", "старий\nмак\nсторінка", {"control_characters": 2}),
        ("и\u0306", "й", {"not_nfc": 1}),
        ("и\u0306\0", "й", {"not_nfc": 1, "control_characters": 1}),
        ("и\0\u0306", "й", {"not_nfc": 1, "control_characters": 1}),
        ("за\u0301мок", "за\u0301мок", {}),
    ],
)
def test_clean(text: str, expected: str, repaired: dict[str, int]) -> None:
    assert cleaned(text) == (expected, repaired)


def test_lone_surrogates_are_no_text() -> None:
    with pytest.raises(CorpusError, match=r"a\.jsonl:3: expected text, got a lone surrogate"):
        cleaned("пів\ud83d")


@given(st.text() | st.text(st.sampled_from("aи\u0306\u0301\0\r\n\t\x0b\x85\x9f")))
def test_cleaned_text_is_clean_and_stays_as_it_is(text: str) -> None:
    result, repaired = cleaned(text)
    assert unicodedata.is_normalized("NFC", result)
    assert not [char for char in result if unicodedata.category(char) == "Cc" and char not in "\t\n"]
    assert cleaned(result) == (result, {})
    assert bool(repaired) == (result != text.replace("\r\n", "\n"))


@given(st.lists(st.text("аб€😀 \r"), min_size=1))
def test_lines_are_those_of_the_text(lines: list[str]) -> None:
    raw = "\n".join(lines) + "\n"
    assert lines_of(raw.encode()) == raw.replace("\r\n", "\n").split("\n")[:-1]


def test_byte_order_marks_go_where_lines_begin() -> None:
    """Those that are not at the start are of files that were joined."""
    assert lines_of("\ufeffодин\n\ufeffдва\r\n\ufefftrzy".encode()) == ["один", "два", "trzy"]


def test_invalid_bytes_stop_with_line_and_hex() -> None:
    raw = "\ufeffдобре\nпога".encode() + b"\xd0\n" + "далі\n".encode()
    with pytest.raises(CorpusError, match=r"a\.txt:2: expected UTF-8, got the bytes d0\. .* iconv -c -f UTF-8"):
        lines_of(raw)


def test_a_stray_zero_byte_does_not_stop() -> None:
    assert lines_of(b"a\0b\nc\n") == ["a\0b", "c"]


def test_a_line_above_the_limit_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spectool.corpora.cleaning.LONGEST_LINE", 30)
    assert lines_of(b"a\n" + b"b" * 29 + b"\nc\n" + b"d" * 30) == ["a", "b" * 29, "c", "d" * 30]
    for raw in (b"a\n" + b"b" * 31 + b"\nc", b"a\n" + b"b" * 31, b"a\n" + b"b" * 5000):
        with pytest.raises(CorpusError, match=r"a\.txt:2: expected at most 0 MiB in one line.*fold -s"):
            lines_of(raw)


def test_more_combining_marks_than_any_writing_has_are_refused() -> None:
    accents = "\u0301\u0323"  # not in the order of NFC, so that they must be sorted
    assert len(cleaned("a" + accents * 20)[0]) == 40  # the first pair is composed
    started = time.process_time()
    with pytest.raises(CorpusError, match=r"a\.jsonl:3: expected text, got more than 200 combining marks in a row"):
        cleaned("a" + accents * 100_000)
    assert time.process_time() - started < 2
