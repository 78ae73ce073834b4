"""Clean documents out of one local file of text, JSON lines or Parquet, or out of the rows of a table.

Whole blocks of lines are tested at once and single lines only where a block is not clean, because real text almost
always is, and every substring of a text in NFC is in NFC. Memory does not depend on the size of a file, but Arrow
trusts what a Parquet file says of itself, so such a corpus should come from someone you trust.
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
from spectool.corpora.files import InputFile, byte_chunks, opened

_BEGINNING = 1 << 16  # characters of a file that tell whether blank lines divide it
_LINES_A_DOCUMENT = 100  # on average at most, if they do
_ROWS_AT_ONCE = 64  # of a Parquet file
_BUFFER = 1 << 20  # bytes of each of its columns


def read_file(file: InputFile, reading: Reading) -> Iterator[Document]:
    """Yield the documents of a file in their order."""
    if file.suffix == ".parquet":
        return documents(_parquet_rows(file, reading), file.name, f"{file.path}, row ", reading)
    blocks = text_blocks(str(file.path), byte_chunks(file, reading), reading.encoding)
    if file.suffix in (".jsonl", ".ndjson"):
        return documents(_json_rows(file, blocks), file.name, f"{file.path}:", reading)
    return _plain_text(file, blocks, reading)


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
            reading.counts.repaired["null"] += 1


def _parquet_rows(file: InputFile, reading: Reading) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number (from 1) and values of every row: the text, and ``id`` where there is one."""
    import pyarrow
    from pyarrow import parquet

    place, row, before = str(file.path), 0, reading.counts.bytes_read
    with opened(file.path) as stream:
        try:
            with parquet.ParquetFile(stream, buffer_size=_BUFFER) as table:
                present = table.schema_arrow.names
                if reading.field not in present:
                    raise missing_column(place, reading.field, present)
                columns = [name for name in dict.fromkeys((reading.field, "id")) if name in present]
                for batch in table.iter_batches(_ROWS_AT_ONCE, columns=columns):
                    for values in zip(*map(batch.column, columns), strict=True):
                        row += 1
                        yield row, dict(zip(columns, (value.as_py() for value in values), strict=True))
                    reading.counts.bytes_read = before + file.size * row // table.metadata.num_rows
                reading.counts.bytes_read = before + file.size
        except (pyarrow.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
            place += f", row {row}" * isinstance(error, UnicodeDecodeError)
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise CorpusError(
                f"{place}: expected a whole Parquet file with text in UTF-8, got one that cannot be read ({reason}). "
                "Fetch it again"
            ) from error


def _json_rows(file: InputFile, blocks: Iterable[tuple[int, str]]) -> Iterator[tuple[int, dict[str, Any]]]:
    for first, block in blocks:
        for number, line in enumerate(block.split("\n"), first):
            if not _is_blank(line):
                yield number, _json_object(line, f"{file.path}:{number}")


def _json_object(line: str, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
        if isinstance(record, dict):
            return record
        found = f"a {type(record).__name__}"
    except (ValueError, RecursionError) as error:
        found = f"{line[:40]!r} ({str(error)[:100]})"
    raise CorpusError(f"{place}: expected one JSON object per line, got {found}. Correct the line")


def _plain_text(file: InputFile, blocks: Iterator[tuple[int, str]], reading: Reading) -> Iterator[Document]:
    """The documents of plain text, divided as asked, or else as its suffix or its beginning suggests."""
    first = next(blocks, (1, ""))
    division = reading.division or ("files" if file.suffix == ".md" else _division(first[1][:_BEGINNING]))
    reading.counts.plain_text[division] += 1
    lines = _clean_lines(file, chain([first], blocks), reading)
    if division == "lines":
        return (Document(f"{file.name}:{number}", text) for number, text in lines if not _is_blank(text))
    return _joined(file, lines, division == "files", reading)


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
            if not ends:
                reading.counts.repaired["cut_documents"] += 1
        if document or not blank:
            begin = begin if document else number
            document.append(text)
            size += len(text) + 1
