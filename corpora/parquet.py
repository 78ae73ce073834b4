"""Rows out of a Parquet file, a few at a time, in memory that does not depend on what the file declares.

A page is decompressed as a whole, and no value is larger than its page or its dictionary page. The sizes in the file's
footer may be anything. So the pages' own headers are read first. Both are Thrift structs in the compact protocol.

Source: parquet-format, parquet.thrift (`PageHeader`); Thrift compact protocol encoding.
"""

import hashlib
import os
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO

from spectool import CorpusError
from spectool.corpora.archives import byte_chunks
from spectool.corpora.cleaning import decode
from spectool.corpora.documents import ReadCounts, Reading, missing_column
from spectool.corpora.encodings import as_utf8
from spectool.corpora.files import InputFile, require_unchanged

LARGEST_PAGE = 256 * 2**20
"""The largest page that is decompressed, in bytes; writers make them of about 1 MiB."""

_ROWS_AT_ONCE = 1024
_BATCH_BYTES = 16 * 2**20
_BUFFER = 1 << 20
_MOST_EXPANSION = 100  # of a Parquet file that is compressed once more; its own pages are compressed already
_LEAST_EXPANSION = 64 * 2**20

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_DELTAS = {5, 6, 7}  # encodings whose lengths are decoded all at once, DELTA_BINARY_PACKED and its two relatives
_DEEPEST, _SHORT = 16, 1024
_ALL: dict[int, Any] = {}
_LISTED = {0: _ALL}  # wanted of a list of simple values: makes it be kept
_ROW_GROUPS, _COLUMNS, _ROWS, _METADATA = 4, 1, 3, 3  # fields of FileMetaData, RowGroup twice, ColumnChunk
_PATH, _CHUNK_BYTES, _DATA_OFFSET, _DICTIONARY_OFFSET = 3, 7, 9, 11  # of ColumnMetaData
_UNCOMPRESSED, _COMPRESSED, _DATA, _DICTIONARY, _DATA_V2 = 2, 3, 5, 7, 8  # of PageHeader
_COLUMN = {_PATH: _LISTED, _CHUNK_BYTES: _ALL, _DATA_OFFSET: _ALL, _DICTIONARY_OFFSET: _ALL}
_FOOTER = {_ROW_GROUPS: {_COLUMNS: {_METADATA: _COLUMN}, _ROWS: _ALL}}
_PAGE = {
    **{_UNCOMPRESSED: _ALL, _COMPRESSED: _ALL, _DICTIONARY: {1: _ALL}},
    **{_DATA: {1: _ALL, 2: _ALL}, _DATA_V2: {1: _ALL, 4: _ALL}},  # number of values, and encoding
}


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
            for number, group in enumerate(row_groups(source)):
                if not group[_ROWS]:
                    continue
                at_once = _rows_at_once(path, source, group, chosen)
                for batch in table.iter_batches(batch_size=at_once, row_groups=[number], columns=chosen):
                    ids = batch.column("id") if "id" in chosen else None
                    for place, text in enumerate(_texts(batch.column(field), path, row, reading)):
                        own = None if ids is None else ids[place].as_py()
                        yield row + place + 1, {"id": own, field: text}
                    row += len(batch)
                    position = min(file.size, file.size * row // rows)
                    counts.bytes_read += position - read
                    read = position
            counts.bytes_read += file.size - read
        except (pyarrow.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
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


def _rows_at_once(path: str, source: BinaryIO, group: dict[int, Any], chosen: list[str]) -> int:
    """Return how many rows of a row group fit into `_BATCH_BYTES`, whatever they hold."""
    names = [[name.encode()] for name in chosen]
    columns = [chunk[_METADATA] for chunk in group[_COLUMNS] if chunk[_METADATA][_PATH] in names]
    largest = max(largest_page(source, column) for column in columns)
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


def row_groups(stream: BinaryIO) -> list[dict[int, Any]]:
    """The row groups of a file as its footer describes them, with the fields that `_FOOTER` names.

    Arrow reads them as well, but a damaged description of a column ends the process there.

    Raises:
        ValueError: There is no footer.
    """
    end = stream.seek(-8, os.SEEK_END)
    length = int.from_bytes(stream.read(4), "little")
    if length > end:
        raise ValueError("a footer that begins before the file")
    stream.seek(end - length)
    groups = _struct(stream, _FOOTER).get(_ROW_GROUPS)
    if not isinstance(groups, list):
        raise ValueError("a footer without row groups")
    return groups


def largest_page(stream: BinaryIO, column: dict[int, Any]) -> int:
    """Bytes of memory that the largest page of a column chunk asks for; ``column`` is its ``ColumnMetaData``.

    Raises:
        ValueError: There are no page headers where the footer says.
    """
    starts = column.get(_DATA_OFFSET), column.get(_DICTIONARY_OFFSET)
    position = min(start for start in starts if start)
    end = position + column[_CHUNK_BYTES]
    largest = 0
    while position < end:
        stream.seek(position)
        header = _struct(stream, _PAGE)
        size, stored = header[_UNCOMPRESSED], header[_COMPRESSED]
        if size < 0 or stored < 0:
            raise ValueError("a page header with negative sizes")
        largest = max(largest, size, _decoded(header))
        position = stream.tell() + stored
    return largest


def _decoded(header: dict[int, Any]) -> int:
    """Return what is allocated by the number of values, whatever the page's bytes are."""
    kinds = {_DICTIONARY: 0, _DATA: 2, _DATA_V2: 4}  # with the field that has the encoding
    for kind, encoding in kinds.items():
        found = header.get(kind, {})
        if not isinstance(found, dict):
            raise ValueError("a page header of another shape")
        if kind == _DICTIONARY and found:
            return 16 * int(found.get(1, 0))
        if found.get(encoding) in _DELTAS:
            return 4 * int(found.get(1, 0))
    return 0


def _struct(stream: BinaryIO, wanted: Mapping[int, Any], depth: int = 0) -> dict[int, Any]:
    """Read a struct; keep the fields that are ``wanted``, by number, with those that are wanted of structs in them."""
    if depth > _DEEPEST:
        raise ValueError("a struct with too many levels")
    fields: dict[int, Any] = {}
    number = 0
    while (head := _byte(stream)) != _STOP:
        number = number + (head >> 4) if head >> 4 else _zigzag(_varint(stream))
        kind = head & 15
        value = kind == _TRUE if kind in (_TRUE, _FALSE) else _value(stream, kind, wanted.get(number, {}), depth)
        if number in wanted:
            fields[number] = value
    return fields


def _value(stream: BinaryIO, kind: int, wanted: Mapping[int, Any], depth: int) -> Any:
    """Read a value. Only lists of what is wanted, numbers and short strings are returned."""
    if kind in (_TRUE, _FALSE, _BYTE):
        return _byte(stream)
    if kind in (4, 5, 6):
        return _zigzag(_varint(stream))
    if kind == _DOUBLE:
        stream.seek(8, os.SEEK_CUR)
    elif kind == _BINARY:
        size = _varint(stream)
        if size <= _SHORT:
            return stream.read(size)
        stream.seek(size, os.SEEK_CUR)
    elif kind in (_LIST, _SET):
        head = _byte(stream)
        size = head >> 4 if head >> 4 < 15 else _varint(stream)
        values = (_value(stream, head & 15, wanted, depth + 1) for _ in range(size))
        return list(values) if wanted else deque(values, maxlen=0)
    elif kind == _MAP:
        if size := _varint(stream):
            kinds = _byte(stream)
            for _ in range(size):
                _value(stream, kinds >> 4, {}, depth + 1)
                _value(stream, kinds & 15, {}, depth + 1)
    elif kind == _STRUCT:
        return _struct(stream, wanted, depth + 1)
    else:
        raise ValueError("a value of no known kind")
    return None


def _byte(stream: BinaryIO) -> int:
    found = stream.read(1)
    if not found:
        raise ValueError("page headers that reach beyond the file")
    return found[0]


def _varint(stream: BinaryIO) -> int:
    value = 0
    for shift in range(0, 64, 7):
        byte = _byte(stream)
        value |= (byte & 127) << shift
        if byte < 128:
            return value
    raise ValueError("a page header with a number of more than 64 bits")


def _zigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)
