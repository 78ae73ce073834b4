"""Rows out of a Parquet file, a few at a time, so that memory does not depend on the size of the file.

Arrow trusts what a file says of itself. A file that was made to do harm can take all memory or end the process, so a
Parquet corpus should come from someone you trust. Text and JSON lines take no more than their longest line needs.
"""

from collections.abc import Iterator
from typing import Any

from spectool import CorpusError
from spectool.corpora.documents import Reading, missing_column
from spectool.corpora.files import InputFile, opened

_ROWS_AT_ONCE = 1024
_BATCH_BYTES = 4 * 2**20
_BUFFER = 1 << 20
_TEXTS = ("string", "large_string", "string_view")  # Arrow's types of text


def parquet_rows(file: InputFile, reading: Reading) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number (from 1) and values of every row: the text, and ``id`` where there is one."""
    import pyarrow
    from pyarrow import parquet

    path, field, counts = str(file.path), reading.field, reading.counts
    with opened(file.path) as stream:
        try:
            with parquet.ParquetFile(stream, buffer_size=_BUFFER) as table:
                columns = _columns(path, field, table.schema_arrow)
                row = counted = 0
                for group in range(table.num_row_groups):
                    at_once = _rows_at_once(table.metadata.row_group(group))
                    for batch in table.iter_batches(at_once, row_groups=[group], columns=columns):
                        for values in zip(*map(batch.column, columns), strict=True):
                            row += 1
                            text = _text(values[0], f"{path}, row {row}")
                            yield row, dict(zip(columns, (text, *(value.as_py() for value in values[1:])), strict=True))
                        position = file.size * row // table.metadata.num_rows
                        counts.bytes_read += position - counted
                        counted = position
                counts.bytes_read += file.size - counted
        except (pyarrow.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise CorpusError(
                f"{path}: expected a whole Parquet file, got one that cannot be read ({reason}). Fetch it again"
            ) from error


def _columns(path: str, field: str, schema: Any) -> list[str]:
    """The columns to read: the text, and the ids of the documents where there are some."""
    from pyarrow import types

    def kind(name: str) -> Any:
        found = schema.field(name).type
        return found.value_type if types.is_dictionary(found) else found

    if field not in schema.names:
        raise missing_column(path, field, schema.names)
    text = kind(field)
    if str(text) not in (*_TEXTS, "null"):
        raise CorpusError(f"{path}: expected text in column {field!r}, got {text}. Name another column: SOURCE#COLUMN")
    if field == "id" or "id" not in schema.names:
        return [field]
    own = kind("id")
    return [field, "id"] if str(own) in _TEXTS or types.is_integer(own) else [field]


def _rows_at_once(group: Any) -> int:
    """How many rows of a row group fit into `_BATCH_BYTES`, if they are about equally long."""
    fitting: int = _BATCH_BYTES * group.num_rows // max(1, group.total_byte_size)
    return max(1, min(_ROWS_AT_ONCE, fitting))


def _text(value: Any, place: str) -> str | None:
    try:
        text: str | None = value.as_py()
    except UnicodeDecodeError as error:
        got = error.object[error.start : error.end].hex(" ")
        raise CorpusError(
            f"{place}: expected UTF-8, got the byte {got} at byte {error.start}. Write the file again"
        ) from error
    return text
