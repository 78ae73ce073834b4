"""Tables as JSON Lines: a JSON object on each line, with exactly the fields of a schema.

Any tool reads such files, and appending one to another joins them. A file may come from a stranger, so every line is
checked before it is used.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from spectool import ArtifactError

LONGEST_ROW = 1 << 20  # bytes
LARGEST = 1e15  # number that need not be whole: products and sums stay finite
LONGEST_TEXT = 1000  # characters of a text, which is drawn and laid out in tables
_BATCH = 1 << 18  # bytes of lines that become columns at once: as Python objects they take several times as much
_SHOWN = 60  # characters of a value in a message
_ROW = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def write_rows(file: Path, schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a file and flush it to the disk.

    Raises:
        ArtifactError: `read_rows` would refuse a row.
    """
    model = _model(schema)
    with synced(file) as stream:
        for number, row in enumerate(rows, 1):
            text = json.dumps({name: row[name] for name in schema.names}, ensure_ascii=False, separators=(",", ":"))
            line = text.encode(errors="surrogatepass") + b"\n"
            try:
                _row(line, model)
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
    model, batches = _model(schema), []
    rows: list[dict[str, Any]] = []
    number = size = 0
    try:
        with file.open("rb") as stream:
            while line := stream.readline(LONGEST_ROW + 1):
                number, size = number + 1, size + len(line)
                rows.append(_row(line, model))
                if size >= _BATCH:
                    batches.append(pa.RecordBatch.from_pylist(rows, schema))
                    rows, size = [], 0
    except OSError as error:
        raise ArtifactError(f"{file}: cannot be read ({error.strerror}). {again}") from error
    except ValueError as error:
        raise ArtifactError(f"{file}, line {number}: {error}. {again}") from error
    batches.append(pa.RecordBatch.from_pylist(rows, schema))
    return pa.Table.from_batches(batches, schema)


def _row(line: bytes, model: type[BaseModel]) -> dict[str, Any]:
    """The row on a line.

    Raises:
        ValueError: It is not a row; the message says what was expected and what came.
    """
    if len(line) > LONGEST_ROW:
        raise ValueError(f"expected a line of at most {LONGEST_ROW:,} bytes, got a longer one")
    try:
        return vars(model.model_validate_json(line))
    except ValidationError as error:
        raise ValueError(_problem(error, model)) from error


def _problem(error: ValidationError, model: type[BaseModel]) -> str:
    """What is wrong with a line, from the first error that pydantic found in it."""
    first = error.errors(include_url=False)[0]
    value = first["input"]
    got = repr(value.decode(errors="replace").rstrip() if isinstance(value, bytes) else value)
    got = got if len(got) <= _SHOWN else f"{got[:_SHOWN]}…"
    if not first["loc"]:  # not an object at all
        return f"expected a JSON object, got {got} ({first['msg']})"
    name = str(first["loc"][0])
    if first["type"] == "missing":
        return f"expected the fields {', '.join(model.model_fields)}, got no {name}"
    if first["type"] == "extra_forbidden":
        return f"expected the fields {', '.join(model.model_fields)}, got also {name[:_SHOWN]!r}"
    return f"{name}: {first['msg'].replace('Input should be', 'expected')}, got {got}"


def _model(schema: pa.Schema) -> type[BaseModel]:
    """What pydantic checks rows with."""
    fields: dict[str, Any] = {
        field.name: (_kind(field.type) | None if field.nullable else _kind(field.type), ...) for field in schema
    }
    return create_model("Row", __config__=_ROW, **fields)


def _kind(kind: pa.DataType) -> Any:
    """What values of a type must be."""
    if pa.types.is_list(kind):
        return list[_kind(kind.value_type)]  # type: ignore[misc]
    if pa.types.is_integer(kind):
        return Annotated[int, Field(ge=0, lt=1 << kind.bit_width - 1)]
    if pa.types.is_floating(kind):
        return Annotated[float, Field(ge=0, le=LARGEST)]
    return Annotated[str, Field(max_length=LONGEST_TEXT)]
