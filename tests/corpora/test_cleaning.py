"""Cleaning: what is repaired silently, what stops, and what every cleaned text has in common."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectool import CorpusError
from spectool.corpora.cleaning import clean, text_blocks
from spectool.corpora.documents import ReadCounts


def cleaned(text: str) -> tuple[str, dict[str, int]]:
    counts = ReadCounts()
    return clean(text, "a.jsonl:3", counts), dict(counts.repaired)


def blocks(raw: bytes, *, piece: int = 7) -> list[tuple[int, str]]:
    chunks = [raw[start : start + piece] for start in range(0, len(raw), piece)]
    return list(text_blocks("a.txt", chunks))


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


@given(st.lists(st.text("aб€😀 \r"), min_size=1), st.integers(1, 9))
def test_blocks_hold_all_lines_whatever_the_pieces(lines: list[str], piece: int) -> None:
    raw = "\n".join(lines).encode()
    found = blocks(raw, piece=piece)
    rebuilt: dict[int, str] = {}
    for first, block in found:
        rebuilt |= dict(enumerate(block.split("\n"), first))
    expected = raw.decode().replace("\r\n", "\n").split("\n")
    assert [rebuilt.get(number, "") for number in range(1, len(expected) + 1)] == expected


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_byte_order_marks_go_where_lines_begin(piece: int) -> None:
    """Those that are not at the start are of files that were joined."""
    found = blocks("\ufeffодин\n\ufeffдва\r\n\ufefftrzy".encode(), piece=piece)
    assert "\n".join(block for _, block in found) == "один\nдва\ntrzy"


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_invalid_bytes_stop_with_line_and_hex(piece: int) -> None:
    raw = "\ufeffдобре\nпога".encode() + b"\xd0\n" + "далі\n".encode()
    with pytest.raises(CorpusError, match=r"a\.txt:2: expected UTF-8, got the bytes d0\. .* iconv -c -f UTF-8"):
        blocks(raw, piece=piece)


def test_a_line_above_the_limit_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spectool.corpora.cleaning.LONGEST_LINE", 30)
    found = blocks(b"a\n" + b"b" * 30 + b"\nc\n" + b"d" * 30)
    assert "\n".join(text for _, text in found) == "a\n" + "b" * 30 + "\nc\n" + "d" * 30
    for raw in (b"a\n" + b"b" * 31 + b"\nc", b"a\n" + b"b" * 31, b"a\n" + b"b" * 5000):
        with pytest.raises(CorpusError, match=r"a\.txt:2: expected at most 16 Mi characters in one line.*fold -s"):
            blocks(raw)


def test_more_combining_marks_than_any_writing_has_are_refused() -> None:
    accents = "\u0301\u0323"  # not in the order of NFC, so that they must be sorted
    assert len(cleaned("a" + accents * 20)[0]) == 40  # the first pair is composed
    started = time.process_time()
    with pytest.raises(CorpusError, match=r"a\.jsonl:3: expected text, got more than 200 combining marks in a row"):
        cleaned("a" + accents * 100_000)
    assert time.process_time() - started < 2
