"""How much memory the pages of a Parquet column take, read from their headers before anything is decompressed.

A page is decompressed as a whole, and no value is larger than its page or its dictionary page. The sizes in the file's
footer may be anything, so the headers themselves are followed. They are Thrift structs in the compact protocol.

Source: parquet-format, parquet.thrift (`PageHeader`); Thrift compact protocol encoding.
"""

from typing import Any, BinaryIO

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_DELTAS = {5, 6, 7}  # encodings whose lengths are decoded all at once, DELTA_BINARY_PACKED and its two relatives
_DEEPEST = 16
_TYPE, _UNCOMPRESSED, _COMPRESSED, _DATA, _DICTIONARY, _DATA_V2 = 1, 2, 3, 5, 7, 8  # fields of PageHeader


def largest_page(stream: BinaryIO, column: Any) -> int:
    """Bytes of memory that the largest page of a column chunk asks for.

    Args:
        stream: The file; its position changes.
        column: Its `pyarrow.parquet.ColumnChunkMetaData`.

    Raises:
        ValueError: There are no page headers where the footer says.
    """
    starts = column.data_page_offset, column.dictionary_page_offset
    position = min(start for start in starts if start)
    end = position + column.total_compressed_size
    largest = 0
    while position < end:
        stream.seek(position)
        header = _struct(stream, 0)
        size, stored = header.get(_UNCOMPRESSED), header.get(_COMPRESSED)
        if not (isinstance(size, int) and isinstance(stored, int) and size >= 0 and stored >= 0):
            raise ValueError("a page header without its sizes")
        largest = max(largest, size, _decoded(header))
        position = stream.tell() + stored
    return largest


def _decoded(header: dict[int, Any]) -> int:
    """Return what is allocated by the number of values, whatever the page's bytes are."""
    try:
        if dictionary := header.get(_DICTIONARY):
            return 16 * int(dictionary.get(1, 0))
        data, encoding = (header[_DATA], 2) if _DATA in header else (header.get(_DATA_V2, {}), 4)
        return 4 * int(data.get(1, 0)) if data.get(encoding) in _DELTAS else 0
    except (AttributeError, TypeError) as error:
        raise ValueError("a page header of another shape") from error


def _struct(stream: BinaryIO, depth: int) -> dict[int, Any]:
    if depth > _DEEPEST:
        raise ValueError("a page header with too many levels")
    fields: dict[int, Any] = {}
    number = 0
    while (head := _byte(stream)) != _STOP:
        number = number + (head >> 4) if head >> 4 else _zigzag(_varint(stream))
        kind = head & 15
        fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else _value(stream, kind, depth)
    return fields


def _value(stream: BinaryIO, kind: int, depth: int) -> Any:
    """Read a value; strings and containers are passed over."""
    if kind in (_TRUE, _FALSE, _BYTE):
        return _byte(stream)
    if kind in (4, 5, 6):
        return _zigzag(_varint(stream))
    if kind == _DOUBLE:
        stream.seek(8, 1)
    elif kind == _BINARY:
        stream.seek(_varint(stream), 1)
    elif kind in (_LIST, _SET):
        head = _byte(stream)
        for _ in range(head >> 4 if head >> 4 < 15 else _varint(stream)):
            _value(stream, head & 15, depth + 1)
    elif kind == _MAP:
        if size := _varint(stream):
            kinds = _byte(stream)
            for _ in range(size):
                _value(stream, kinds >> 4, depth + 1)
                _value(stream, kinds & 15, depth + 1)
    elif kind == _STRUCT:
        return _struct(stream, depth + 1)
    else:
        raise ValueError("a page header with a value of no known kind")
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
