"""Clean documents out of one local file of text or JSON lines, or out of the rows of a table.

Whole blocks of lines are tested at once and single lines only where a block is not clean, because real text almost
always is, and every substring of a text in NFC is in NFC.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from spectool import CorpusError
from spectool.corpora.cleaning import clean, is_clean
from spectool.corpora.documents import (
    LONGEST_DOCUMENT,
    LONGEST_LINE,
    Division,
    Document,
    Reading,
    missing_column,
    too_long,
)
from spectool.corpora.encodings import text_blocks
from spectool.corpora.files import InputFile, byte_chunks

_BEGINNING = 1 << 16  # characters of a file that tell whether blank lines divide it
_LINES_A_DOCUMENT = 100  # on average at most, if they do


def read_text(file: InputFile, reading: Reading, by_default: Division | None = None) -> Iterator[Document]:
    """Yield the documents of plain text, divided as asked, or else ``by_default``, or as its beginning suggests."""
    blocks = _blocks(file, reading)
    first = next(blocks, (1, ""))
    division = reading.division or by_default or _division(first[1][:_BEGINNING])
    reading.counts.plain_text[division] += 1
    lines = _clean_lines(file, chain([first], blocks), reading)
    if division == "lines":
        yield from (Document(f"{file.name}:{number}", text) for number, text in lines if not _is_blank(text))
    else:
        yield from _joined(file, lines, division == "files", reading)


def read_json_lines(file: InputFile, reading: Reading) -> Iterator[Document]:
    """Yield the documents of a file with a JSON object on each line."""
    rows = (
        (number, _json_object(line, f"{file.path}:{number}"))
        for first, block in _blocks(file, reading)
        for number, line in enumerate(block.split("\n"), first)
        if line and not line.isspace()
    )
    return documents(rows, file.name, f"{file.path}:", reading)


def _blocks(file: InputFile, reading: Reading) -> Iterator[tuple[int, str]]:
    return text_blocks(str(file.path), byte_chunks(file, reading), reading.encoding)


def documents(
    rows: Iterable[tuple[int, Mapping[str, Any]]], name: str, place: str, reading: Reading
) -> Iterator[Document]:
    """Yield the documents in rows of a table, and count rows without a text.

    Args:
        rows: Number and values by column.
        name: Comes before the number in the id of a row that has no string or integer ``id`` of its own.
        place: Comes before the number in errors: file and ``:`` or ``, row ``.
        reading: Column and counts.
    """
    field = reading.field
    for number, row in rows:
        if field not in row:
            raise missing_column(f"{place}{number}", field, list(row))
        text = row[field]
        if text is not None and not isinstance(text, str):
            raise CorpusError(
                f"{place}{number}: expected text in column {field!r}, got {type(text).__name__}. Name another column: "
                "SOURCE#COLUMN"
            )
        if text is not None and len(text) > LONGEST_LINE:
            raise too_long(f"{place}{number}")
        text = clean(text or "", f"{place}{number}", reading)
        if text and not text.isspace():
            own = row.get("id")
            known = own != "" and isinstance(own, str | int) and not isinstance(own, bool)
            yield Document(str(own) if known else f"{name}:{number}", text)
        else:
            reading.repaired("null")


def _division(beginning: str) -> Division:
    """How to divide a text that begins like this: at blank lines, if they are no rare exception."""
    lines = beginning.strip().split("\n")
    return "blank-lines" if sum(map(_is_blank, lines)) * _LINES_A_DOCUMENT >= len(lines) else "lines"


def _is_blank(line: str) -> bool:
    return not line or line.isspace()


def _clean_lines(file: InputFile, blocks: Iterable[tuple[int, str]], reading: Reading) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers."""
    for first, block in blocks:
        lines = enumerate(block.split("\n"), first)
        if is_clean(block):
            yield from lines
        else:
            yield from ((number, clean(line, f"{file.path}:{number}", reading)) for number, line in lines)


def _joined(file: InputFile, lines: Iterator[tuple[int, str]], whole: bool, reading: Reading) -> Iterator[Document]:
    """Documents of several lines; a ``whole`` file is one, with its blank lines."""
    document: list[str] = []
    begin = size = 0
    for number, text in chain(lines, [(0, "")]):
        blank = _is_blank(text)
        ends = not number or (blank and not whole)
        if document and (ends or size + len(text) > LONGEST_DOCUMENT):
            yield Document(f"{file.name}:{begin}", "\n".join(document).rstrip("\n"))
            document, size = [], 0
            reading.repaired("cut_documents", int(not ends))
        if document or not blank:
            begin = begin if document else number
            document.append(text)
            size += len(text) + 1


def _json_object(line: str, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise CorpusError(
            f"{place}:{error.colno}: expected one JSON object per line, got {line[:40]!r} ({error.msg}). Correct "
            "the line"
        ) from error
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{place}: this JSON cannot be read ({error}). Correct the line") from error
    if not isinstance(record, dict):
        raise CorpusError(
            f"{place}: expected one JSON object per line, got a {type(record).__name__}. Correct the line"
        )
    return record
