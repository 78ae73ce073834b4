"""Parquet files of a known schema, read in bounded memory, whoever wrote them.

A Parquet file of 500 bytes can hold billions of equal values, and a page of it can declare gigabytes before it is
decompressed. What a file will take is in the headers of its pages, so these are read first. A header is a struct of
Thrift's compact protocol; https://parquet.apache.org/docs/file-format describes both.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spectool import ArtifactError

_TIMES, _BESIDES = 100, 64 << 20  # bytes of a table: at most this many per byte of its file, plus these
_BYTES_OF_A_VALUE = 8
_THRIFT = {"thrift_string_size_limit": 1 << 20, "thrift_container_size_limit": 1 << 16}
_SIZE, _STORED = 2, 3  # fields of PageHeader: bytes when decompressed, and as they are
_DATA_PAGES, _VALUES = (5, 8), 1  # its fields for pages of values, and of these the number


def read_rows(file: Path, schema: pa.Schema, again: str) -> pa.Table:
    """Read a file.

    Args:
        file: Where it lies.
        schema: Exactly the columns and the metadata that it must have.
        again: What to do about a damaged one, for the message.

    Raises:
        ArtifactError: It is missing or damaged, has other columns, or would take far more memory than its size.
    """
    try:
        data = file.read_bytes()
        source = pa.BufferReader(data)
        found = pq.ParquetFile(source, **_THRIFT)
        if not found.schema_arrow.equals(schema, check_metadata=True):
            raise ArtifactError(f"{file}: columns {found.schema_arrow.names}, expected {schema.names}. {again}")
        most = _TIMES * len(data) + _BESIDES
        if (needed := _bytes_of_pages(data, found.metadata)) > most:
            raise ValueError(f"its pages take {needed:,} bytes, expected at most {most:,}")
        texts = [column.name for column in schema if column.type == pa.string()]
        rows = pq.ParquetFile(source, read_dictionary=texts, **_THRIFT).read()
        rows.validate(full=True)
        if (needed := sum(_bytes_of_text(rows[name]) for name in texts)) > most:
            raise ValueError(f"its text takes {needed:,} bytes, expected at most {most:,}")
        return rows.cast(schema)
    except (pa.ArrowException, OSError, ValueError, IndexError, KeyError, TypeError, RecursionError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ArtifactError(f"{file}: not a readable Parquet file ({reason}). {again}") from error


def _bytes_of_pages(data: bytes, metadata: Any) -> int:
    """Return what all pages take when they are decompressed and decoded, by their own headers."""
    needed = 0
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            starts = [column.data_page_offset, column.dictionary_page_offset or 0]
            place = min(start for start in starts if start > 0)
            values, end = 0, place + column.total_compressed_size
            if not 0 < place <= end <= len(data):
                raise ValueError("a column lies outside the file")
            while place < end and values < column.num_values:
                header = _Thrift(memoryview(data)[:end], place)
                fields = header.struct()
                place = header.place + fields[_STORED]
                if fields[_STORED] < 0 or fields[_SIZE] < 0 or place > end:
                    raise ValueError("a page lies outside its column")
                values += sum(fields[kind][_VALUES] for kind in _DATA_PAGES if kind in fields)
                needed += fields[_SIZE]
            if values != column.num_values:
                raise ValueError(f"{values:,} values in a column of {column.num_values:,}")
            needed += values * _BYTES_OF_A_VALUE
    return needed


def _bytes_of_text(column: pa.ChunkedArray) -> int:
    """Return what a column of text takes when each row has its own, and not a place in a dictionary."""
    return sum(
        pc.sum(pc.binary_length(chunk.dictionary).cast(pa.int64()).take(chunk.indices)).as_py() or 0
        for chunk in column.chunks
    )


class _Thrift:
    """Reads a struct, the numbers in it by their fields."""

    def __init__(self, data: memoryview, place: int) -> None:
        self._data, self.place = data, place

    def _byte(self) -> int:
        self.place += 1
        return self._data[self.place - 1]

    def _number(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number without an end")
        return number | byte << shift

    def _signed(self) -> int:
        number = self._number()
        return number >> 1 ^ -(number & 1)

    def struct(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        last = 0
        while byte := self._byte():
            last = last + (byte >> 4) if byte >> 4 else self._signed()
            fields[last] = self._value(byte & 15)
        return fields

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2:
                return kind == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                self.place += 8
            case 8:
                size = self._number()  # which moves the place itself
                self.place += size
            case 12:
                return self.struct()
            case _:
                raise ValueError("a page header with a value of an unknown kind")
        if self.place > len(self._data):
            raise ValueError("a page header ends too early")
        return None
