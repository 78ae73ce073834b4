"""Documents out of one local file: plain text, JSON lines, Parquet."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spectool import CorpusError
from spectool.corpora.archives import byte_chunks
from spectool.corpora.cleaning import clean, is_clean, text_blocks
from spectool.corpora.documents import LONGEST, Document, Reading, missing_column, too_long
from spectool.corpora.files import InputFile

_MOST_BRACKETS = 500_000  # each may stand for an object of some 200 bytes


def read_file(file: InputFile, reading: Reading) -> Iterator[Document]:
    """Yield the documents of a file in their order.

    Raises:
        CorpusError: Anything in the file that is not what it should be; names the file and the line or row.
    """
    if file.format == "parquet":
        from spectool.corpora.parquet import parquet_rows

        return documents(parquet_rows(file, reading), file.name, f"{file.path}, row ", reading)
    return (_read_text if file.format == "text" else _read_jsonl)(file, reading)


def documents(
    rows: Iterable[tuple[int, Mapping[str, Any]]], name: str, place: str, reading: Reading
) -> Iterator[Document]:
    """Yield the documents in rows of a table; those without a text are counted.

    Args:
        rows: Number and values by column.
        name: Stands before the number in the id of a row that has no string or integer ``id`` of its own.
        place: Stands before the number in errors: file and ``:`` or ``, row ``.
        reading: Column, repairs, counts.

    Raises:
        CorpusError: The column is missing or holds no text.
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
        if text is not None and len(text) > LONGEST:
            raise too_long(f"{place}{number}")
        text = clean(text or "", f"{place}{number}", reading)
        if text and not text.isspace():
            own = row.get("id")
            known = own != "" and isinstance(own, str | int) and not isinstance(own, bool)
            yield Document(str(own) if known else f"{name}:{number}", text)
        else:
            reading.repaired("null")


def _read_text(file: InputFile, reading: Reading) -> Iterator[Document]:
    for first, block in _blocks(file, reading):
        block_is_clean = is_clean(block)
        for number, line in enumerate(block.split("\n"), first):
            text = line if block_is_clean else clean(line, f"{file.path}:{number}", reading)
            if text and not text.isspace():
                yield Document(f"{file.name}:{number}", text)


def _blocks(file: InputFile, reading: Reading) -> Iterator[tuple[int, str]]:
    return text_blocks(str(file.path), _bytes_of(file, reading), reading)


def _bytes_of(file: InputFile, reading: Reading) -> Iterator[bytes]:
    return byte_chunks(file.path, file.compression, reading.counts, reading.versions)


def _read_jsonl(file: InputFile, reading: Reading) -> Iterator[Document]:
    rows = (
        (number, _json_object(line, f"{file.path}:{number}"))
        for first, block in _blocks(file, reading)
        for number, line in enumerate(block.split("\n"), first)
        if line and not line.isspace()
    )
    return documents(rows, file.name, f"{file.path}:", reading)


def _json_object(line: str, place: str) -> dict[str, Any]:
    if line.count("{") + line.count("[") > _MOST_BRACKETS:
        raise CorpusError(
            f"{place}: expected a JSON object with a text, got one with more than {_MOST_BRACKETS:,} lists and "
            "objects. Keep the text alone: jq -c '{text}' FILE > NEW"
        )
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise CorpusError(
            f"{place}:{error.colno}: expected one JSON object a line, got {line[:40]!r} ({error.msg}). Correct the line"
        ) from error
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{place}: this JSON cannot be read ({error}). Correct the line") from error
    if not isinstance(record, dict):
        raise CorpusError(f"{place}: expected one JSON object a line, got a {type(record).__name__}. Correct the line")
    return record
