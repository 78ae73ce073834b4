"""Documents out of one local file: plain text, JSON lines, Parquet."""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from spectool import CorpusError
from spectool.corpora.archives import byte_chunks
from spectool.corpora.cleaning import clean, decode, is_clean, text_blocks
from spectool.corpora.documents import Document, ReadCounts, Reading
from spectool.corpora.files import InputFile

_ROWS_AT_ONCE = 1024


def read_file(file: InputFile, reading: Reading) -> Iterator[Document]:
    """Yield the documents of a file in their order.

    Raises:
        CorpusError: Anything in the file that is not what it should be; names the file and the line or row.
    """
    return {"text": _read_text, "jsonl": _read_jsonl, "parquet": _read_parquet}[file.format](file, reading)


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
        text = clean(text or "", f"{place}{number}", reading)
        if text and not text.isspace():
            own = row.get("id")
            known = own != "" and isinstance(own, str | int) and not isinstance(own, bool)
            yield Document(str(own) if known else f"{name}:{number}", text)
        else:
            reading.repaired("null")


def missing_column(place: str, field: str, present: list[str]) -> CorpusError:
    """Return the error for a table without the column that was asked for."""
    columns = ", ".join(present) if present else "none"
    return CorpusError(f"{place}: expected a column {field!r}, got these: {columns}. Name the right one: SOURCE#COLUMN")


def _read_text(file: InputFile, reading: Reading) -> Iterator[Document]:
    for first, block in _blocks(file, reading):
        block_is_clean = is_clean(block)
        for number, line in enumerate(block.split("\n"), first):
            text = line if block_is_clean else clean(line, f"{file.path}:{number}", reading)
            if text and not text.isspace():
                yield Document(f"{file.name}:{number}", text)


def _blocks(file: InputFile, reading: Reading) -> Iterator[tuple[int, str]]:
    return text_blocks(str(file.path), byte_chunks(file.path, file.compression, reading.counts), reading)


def _read_jsonl(file: InputFile, reading: Reading) -> Iterator[Document]:
    rows = (
        (number, _json_object(line, f"{file.path}:{number}"))
        for first, block in _blocks(file, reading)
        for number, line in enumerate(block.split("\n"), first)
        if line and not line.isspace()
    )
    return documents(rows, file.name, f"{file.path}:", reading)


def _json_object(line: str, place: str) -> dict[str, Any]:
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


def _read_parquet(file: InputFile, reading: Reading) -> Iterator[Document]:
    import pyarrow
    from pyarrow import parquet

    path, field, counts = str(file.path), reading.field, reading.counts
    with ExitStack() as stack:
        source: Any = path
        if file.compression:
            # Parquet is read from its end; a stream cannot do that.
            source = stack.enter_context(tempfile.TemporaryFile())
            for chunk in byte_chunks(file.path, file.compression, ReadCounts()):
                source.write(chunk)
            source.seek(0)
        try:
            table = stack.enter_context(parquet.ParquetFile(source))
            columns = list(table.schema_arrow.names)
            if field not in columns:
                raise missing_column(path, field, columns)
            chosen = [field, "id"] if "id" in columns and field != "id" else [field]
            row, rows, read = 0, table.metadata.num_rows, 0
            for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, columns=chosen):
                texts = _values(batch.column(field), path, row, reading)
                ids = batch.column("id").to_pylist() if "id" in chosen else [None] * len(texts)
                records = ({"id": own, field: text} for text, own in zip(texts, ids, strict=True))
                yield from documents(enumerate(records, row + 1), file.name, f"{path}, row ", reading)
                row += len(texts)
                position = file.size * row // rows
                counts.bytes_read += position - read
                read = position
            counts.bytes_read += file.size - read
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = str(error).splitlines()[0]
            raise CorpusError(
                f"{path}: expected a whole Parquet file, got one that cannot be read ({reason}). Fetch it again"
            ) from error


def _values(column: Any, path: str, rows_before: int, reading: Reading) -> list[Any]:
    """Return a Parquet column as Python values, decoding text row by row where Arrow cannot."""
    import pyarrow

    try:
        values: list[Any] = column.to_pylist()
        return values
    except UnicodeDecodeError:
        if pyarrow.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        raw = column.cast(pyarrow.large_binary()).to_pylist()

    def text(row: int, value: bytes | None) -> str | None:
        return None if value is None else decode(value, lambda _: f"{path}, row {row}", 0, reading)

    return [text(row, value) for row, value in enumerate(raw, rows_before + 1)]
