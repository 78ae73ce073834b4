"""Arrow IPC files of equally long columns, memory-mapped and read without copies.

A dictionary needs only `arrays`, and importing pyarrow would take more memory than the dictionary itself.
"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spectool import ArtifactError

_MAGIC = b"ARROW1"
_BEGINNING = len(_MAGIC) + 2  # padded to whole words
_HEADER, _NOTES, _COMPRESSION = 2, 4, 3  # two fields of Message, one of RecordBatch, in Arrow's Message.fbs


def write_columns(path: Path, columns: Mapping[str, pa.Array]) -> None:
    """Write one record batch. The bytes depend only on the columns."""
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def read_columns(path: Path, types: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a file by name, mapped into memory: exactly those of ``types``, without missing values.

    Every buffer and offset must lie within the file, and text must be UTF-8. Compressed files are refused, because the
    sizes that they declare are allocated before they turn out to be wrong.

    Raises:
        ArtifactError: It is not such a file.
    """
    try:
        found, batch = _read(path, types)
    except (pa.ArrowException, OSError, ValueError, IndexError, struct.error) as error:
        raise ArtifactError(f"{path}: not a readable Arrow file ({error}). Build the artifact again") from error
    if batch is None:
        raise ArtifactError(f"{path}: columns {_show(found)}, expected {_show(types)}. Build the artifact again")
    for name in types:
        if batch.column(name).null_count:
            raise ArtifactError(f"{path}: column {name} has missing values. Build the artifact again")
    return {name: batch.column(name) for name in types}


def _read(path: Path, types: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """The types of a file's columns, and its batch, which is None if the types are not the expected ones.

    A file is a magic number and a stream of messages. The footer, which repeats their positions, is not needed.
    """
    size = path.stat().st_size
    data = pa.memory_map(str(path), "r").read_buffer(size)
    ends = (0, max(0, size - len(_MAGIC)))
    if size < _BEGINNING or any(data.slice(end, len(_MAGIC)).to_pybytes() != _MAGIC for end in ends):
        raise ValueError("does not begin and end with ARROW1")
    messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(data.slice(_BEGINNING)))
    first = _next(messages)
    if first is None or first.type != "schema":
        raise ValueError("no schema at its beginning")
    schema = pa.ipc.read_schema(first)
    found = dict(zip(schema.names, schema.types, strict=False))
    if len(schema) != len(types) or found != dict(types):
        return found, None
    message = _next(messages)
    if message is None or message.type != "record batch":
        raise ValueError("no record batch after the schema")
    if _is_compressed(message.metadata.to_pybytes()):
        raise ValueError("the columns are compressed")
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    if _next(messages) is not None:
        raise ValueError("more than one record batch")
    return found, batch


def _next(messages: Any) -> Any:
    """The next message of a stream, None at its end."""
    try:
        return messages.read_next_message()
    except StopIteration:
        return None


def _is_compressed(metadata: bytes) -> bool:
    """Whether the message of a record batch, a flatbuffer, says that its buffers are compressed.

    Arrow 0.17 said so in the message's notes, which are still read, so a message with notes counts as compressed.
    """

    def field(table: int, number: int) -> int:
        """Position of a table's field, 0 if it is left out."""
        vtable = table - struct.unpack_from("<i", metadata, table)[0]
        if not 0 <= vtable < len(metadata):
            raise ValueError("a table leads outside its message")
        (bytes_of_vtable,) = struct.unpack_from("<H", metadata, vtable)
        place = 4 + 2 * number
        offset: int = struct.unpack_from("<H", metadata, vtable + place)[0] if place < bytes_of_vtable else 0
        return table + offset if offset else 0

    def follow(place: int) -> int:
        target: int = place + struct.unpack_from("<I", metadata, place)[0]
        return target

    message = follow(0)
    return bool(field(message, _NOTES) or field(follow(field(message, _HEADER)), _COMPRESSION))


def as_numpy(column: pa.Array) -> NDArray[Any]:
    """A column of numbers as an array over the same memory.

    Arrow's own conversion imports pandas if it is installed, and a Ctrl-C during that import is lost.
    """
    data = column.buffers()[1]
    kind = np.dtype(str(column.type))
    if data is None:
        return np.zeros(0, kind)
    return np.frombuffer(data, kind, len(column), column.offset * kind.itemsize)


def _show(types: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in types.items())
