"""Rows out of a Parquet file, a few at a time, in memory that does not depend on what the file declares."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO

from spectool import CorpusError
from spectool.corpora.archives import byte_chunks
from spectool.corpora.cleaning import decode
from spectool.corpora.documents import ReadCounts, Reading, missing_column
from spectool.corpora.encodings import as_utf8
from spectool.corpora.files import InputFile
from spectool.corpora.parquet_pages import largest_page
from spectool.corpora.versions import require_unchanged

LARGEST_PAGE = 256 * 2**20
"""The largest page that is decompressed, in bytes; writers make them of about 1 MiB."""

_ROWS_AT_ONCE = 1024
_BATCH_BYTES = 16 * 2**20
_BUFFER = 1 << 20
_MOST_EXPANSION = 100  # of a Parquet file that is compressed once more; its own pages are compressed already
_LEAST_EXPANSION = 64 * 2**20


def parquet_rows(file: InputFile, reading: Reading) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number (from 1) and values of every row: the text, and ``id`` where there is one.

    Raises:
        CorpusError: No whole Parquet file, another one in the meantime, no such column or no text in it, or pages
            above `LARGEST_PAGE`.
    """
    import pyarrow
    from pyarrow import parquet

    path, field, counts = str(file.path), reading.field, reading.counts
    with ExitStack() as stack:
        source = stack.enter_context(_opened(file, reading))
        try:
            table = stack.enter_context(parquet.ParquetFile(source, buffer_size=_BUFFER))
            columns = list(table.schema_arrow.names)
            if field not in columns:
                raise missing_column(path, field, columns)
            _require_text(path, field, table.schema_arrow.field(field).type, reading)
            chosen = (
                [field, "id"]
                if field != "id" and "id" in columns and _names(table.schema_arrow.field("id"))
                else [field]
            )
            row = read = 0
            rows = max(1, table.metadata.num_rows)
            for group in filter(lambda each: table.metadata.row_group(each).num_rows, range(table.num_row_groups)):
                at_once = _rows_at_once(path, source, table, group, chosen)
                for batch in table.iter_batches(batch_size=at_once, row_groups=[group], columns=chosen):
                    ids = batch.column("id") if "id" in chosen else None
                    for number, text in enumerate(_texts(batch.column(field), path, row, reading)):
                        own = None if ids is None else ids[number].as_py()
                        yield row + number + 1, {"id": own, field: text}
                    row += len(batch)
                    position = min(file.size, file.size * row // rows)
                    counts.bytes_read += position - read
                    read = position
            counts.bytes_read += file.size - read
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise CorpusError(
                f"{path}: expected a whole Parquet file, got one that cannot be read ({reason}). Fetch it again"
            ) from error


@contextmanager
def _opened(file: InputFile, reading: Reading) -> Iterator[BinaryIO]:
    """Open a file, hashed, or a decompressed copy: Parquet is read from its end, which a stream cannot do."""
    if file.compression:
        most = _LEAST_EXPANSION + _MOST_EXPANSION * file.size
        with tempfile.TemporaryFile() as copy:
            for chunk in byte_chunks(file.path, file.compression, ReadCounts(), reading.versions):
                copy.write(chunk)
                if copy.tell() > most:
                    raise CorpusError(
                        f"{file.path}: expected at most {most:,} bytes in an archive of {file.size:,}, got more. "
                        "Decompress it yourself, and name the .parquet file"
                    )
            copy.seek(0)
            yield copy
        return
    try:
        raw = file.path.open("rb")
    except OSError as error:
        raise CorpusError(f"{file.path}: cannot be opened ({error.strerror}). Check its permissions.") from error
    with raw:
        before = os.fstat(raw.fileno())
        reading.versions.check(file.path, before)
        digest = hashlib.file_digest(raw, "sha256").hexdigest()
        require_unchanged(file.path, before, os.fstat(raw.fileno()))
        reading.versions.check(file.path, before, digest)
        yield raw
        require_unchanged(file.path, before, os.fstat(raw.fileno()))


def _require_text(path: str, field: str, kind: Any, reading: Reading) -> None:
    """Check the type of the text's column; bytes are text where the encoding was named."""
    from pyarrow import types

    value = kind.value_type if types.is_dictionary(kind) else kind
    text = types.is_string(value) or types.is_large_string(value) or types.is_null(value)
    if not text and not (reading.encoding and (types.is_binary(value) or types.is_large_binary(value))):
        raise CorpusError(f"{path}: expected text in column {field!r}, got {value}. Name another column: SOURCE#COLUMN")


def _names(column: Any) -> bool:
    """Say whether the values of a column can be ids of documents."""
    from pyarrow import types

    value = column.type.value_type if types.is_dictionary(column.type) else column.type
    return bool(types.is_string(value) or types.is_large_string(value) or types.is_integer(value))


def _rows_at_once(path: str, source: BinaryIO, table: Any, group: int, chosen: list[str]) -> int:
    """Return how many rows of a row group fit into `_BATCH_BYTES`, whatever they hold."""
    metadata = table.metadata.row_group(group)
    columns = (metadata.column(number) for number in range(metadata.num_columns))
    largest = max(largest_page(source, column) for column in columns if column.path_in_schema in chosen)
    if largest > LARGEST_PAGE:
        raise CorpusError(
            f"{path}: expected pages of at most {LARGEST_PAGE >> 20} MiB, got one that takes {largest >> 20:,} MiB. "
            "Write the table with smaller pages, or as .jsonl.zst"
        )
    return max(1, min(_ROWS_AT_ONCE, _BATCH_BYTES // max(1, largest)))


def _texts(column: Any, path: str, rows_before: int, reading: Reading) -> Iterator[str | None]:
    """Yield the values of a column as text, one by one: those of a dictionary may be large and frequent."""
    for row, value in enumerate(column, rows_before + 1):
        place = f"{path}, row {row}"
        try:
            text = value.as_py()
        except UnicodeDecodeError:
            text = getattr(value, "value", value).as_buffer().to_pybytes()
        if not isinstance(text, bytes):
            yield text
        elif reading.encoding is None:
            yield decode(text, lambda _, place=place: place, 0, reading)  # type: ignore[misc]
        else:
            yield b"".join(as_utf8(place, [text], reading)).decode()
