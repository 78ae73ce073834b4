"""Tables as JSON Lines: a JSON object on each line, with exactly the fields of a schema.

Any tool reads such files, and appending one to another joins them. A file may come from a stranger, so every line is
checked before it is used.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import pyarrow as pa

from spectool import ArtifactError

LONGEST = 1 << 20  # bytes of a line
LARGEST = 1e15  # number that need not be whole: products and sums stay finite
LONGEST_TEXT = 1000  # characters of a text, which is drawn and laid out in tables
_BATCH = 1 << 18  # bytes of lines that become columns at once: as Python objects they take several times as much
_SHOWN = 60  # characters of a value in a message


class _Field(NamedTuple):
    """A field that every row must have."""

    name: str
    nullable: bool
    expected: str  # in words
    fits: Callable[[Any], bool]


def write_rows(file: Path, schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a file and flush it to the disk. Rows that `read_rows` would refuse are errors.

    Raises:
        ArtifactError: A value does not fit the schema.
    """
    fields = _fields(schema)
    with synced(file) as stream:
        for number, row in enumerate(rows, 1):
            text = json.dumps({name: row[name] for name in schema.names}, ensure_ascii=False, separators=(",", ":"))
            line = text.encode(errors="surrogatepass") + b"\n"
            try:
                _row(line, fields)
            except ValueError as error:
                raise ArtifactError(f"{file}, line {number}, cannot be written: {error}") from error
            stream.write(line)


@contextmanager
def synced(file: Path) -> Iterator[IO[bytes]]:
    """A file open for writing, which is flushed to the disk when the block ends."""
    with file.open("wb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def read_rows(file: Path, schema: pa.Schema, again: str) -> pa.Table:
    """The rows of a file; takes a few times its size in memory.

    Args:
        file: The file.
        schema: The fields of every row, in any order. Numbers are at least 0.
        again: What to do about a damaged file, for the message.

    Raises:
        ArtifactError: The file cannot be read, or a line is not such a row.
    """
    fields, batches = _fields(schema), []
    rows: list[dict[str, Any]] = []
    number = size = 0
    try:
        with file.open("rb") as stream:
            while line := stream.readline(LONGEST + 1):
                number, size = number + 1, size + len(line)
                rows.append(_row(line, fields))
                if size >= _BATCH:
                    batches.append(pa.RecordBatch.from_pylist(rows, schema))
                    rows, size = [], 0
    except OSError as error:
        raise ArtifactError(f"{file}: cannot be read ({error.strerror}). {again}") from error
    except ValueError as error:
        raise ArtifactError(f"{file}, line {number}: {error}. {again}") from error
    batches.append(pa.RecordBatch.from_pylist(rows, schema))
    return pa.Table.from_batches(batches, schema)


def _row(line: bytes, fields: Mapping[str, _Field]) -> dict[str, Any]:
    """The row on a line.

    Raises:
        ValueError: It is not a row; the message says what was expected and what came.
    """
    if len(line) > LONGEST:
        raise ValueError(f"expected a line of at most {LONGEST:,} bytes, got a longer one")
    try:
        pairs = json.loads(line.decode().rstrip(), object_pairs_hook=tuple, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected a JSON object, got {_short(line)} ({_reason(error)})") from error
    if type(pairs) is not tuple:
        raise ValueError(f"expected a JSON object, got {_short(line)}")
    row = dict(pairs)
    if len(pairs) != len(fields) or row.keys() != fields.keys():
        raise ValueError(f"expected the fields {', '.join(fields)}, got {_other_fields(pairs, fields)}")
    for name, nullable, expected, fits in fields.values():
        value = row[name]
        if not (fits(value) or (nullable and value is None)):
            raise ValueError(f"expected {expected}{' or null' * nullable} as {name}, got {_spelt(value)}")
    return row


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' at')} at column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error).partition(";")[0]


def _other_fields(pairs: tuple[tuple[str, Any], ...], fields: Mapping[str, _Field]) -> str:
    """How the fields of a row differ from the expected ones: the first difference of each kind."""
    names = [name for name, _ in pairs]
    unknown = [f"also {_spelt(name)}" for name in names if name not in fields]
    twice = [f"{name} more than once" for name in fields if names.count(name) > 1]
    missing = [f"no {name}" for name in fields if name not in names]
    return ", ".join(part for kind in (missing, unknown, twice) for part in kind[:1])


def _short(line: bytes) -> str:
    text = line.decode(errors="replace").rstrip("\r\n")
    return repr(text[:_SHOWN]) + ("…" if len(text) > _SHOWN else "") if text else "an empty line"


def _spelt(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "another list" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _fields(schema: pa.Schema) -> dict[str, _Field]:
    return {field.name: _Field(field.name, field.nullable, *_kind(field.type)) for field in schema}


def _kind(kind: pa.DataType) -> tuple[str, Callable[[Any], bool]]:
    """What values of a type must be, in words and as a check."""
    if pa.types.is_list(kind):
        expected, fits = _kind(kind.value_type)
        return f"a list of which each item is {expected}", lambda value: type(value) is list and all(map(fits, value))
    if pa.types.is_integer(kind):
        most = (1 << kind.bit_width - 1) - 1
        return f"a whole number from 0 to {most}", lambda value: type(value) is int and 0 <= value <= most
    if pa.types.is_floating(kind):  # of a NaN no comparison holds
        return f"a number from 0 to {LARGEST:g}", lambda value: type(value) in (int, float) and 0 <= value <= LARGEST
    return f"text of at most {LONGEST_TEXT:,} characters", _is_text


def _is_text(value: Any) -> bool:
    """Return whether a value is text, short enough and without lone surrogates."""
    return type(value) is str and len(value) <= LONGEST_TEXT and value.encode(errors="ignore").decode() == value
