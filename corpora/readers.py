"""Clean documents out of one local file of text, JSON lines or Parquet.

Memory does not depend on the size of a file, but Arrow trusts what a Parquet file says of itself, so such a corpus
should come from someone you trust.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from spectool import CorpusError, require_extra
from spectool.corpora.cleaning import LONGEST_LINE, ReadCounts, clean, text_lines, too_long
from spectool.corpora.files import TABLES, InputFile, opened, opened_on_disk

LONGEST_DOCUMENT = 2**20  # characters at which lines of plain text are no longer joined to one document
_BEGINNING = 1 << 16  # bytes of a file that tell whether blank lines divide it
_LINES_A_DOCUMENT = 100  # on average at most, if they do
_ROWS_AT_ONCE = 64  # of a Parquet file
_BUFFER = 1 << 20  # bytes


def read_file(file: InputFile, field: str, counts: ReadCounts) -> Iterator[str]:
    """Yield the documents of a file in their order; of a table, the text is in the column ``field``."""
    if file.suffix == ".parquet":
        return _documents(_parquet_values(file, field, counts), field, counts)
    lines = text_lines(file, counts)
    if file.suffix in TABLES:
        return _documents(_json_values(lines, field), field, counts)
    return _plain_text(file, lines, counts)


def _documents(values: Iterable[tuple[str, Any]], field: str, counts: ReadCounts) -> Iterator[str]:
    """Yield the documents in a column of a table, given by place, and count rows without a text."""
    for place, text in values:
        if text is not None and not isinstance(text, str):
            raise CorpusError(
                f"{place}: expected text in column {field!r}, got {type(text).__name__}. Name another column: "
                "SOURCE#COLUMN"
            )
        if text is not None and len(text) > LONGEST_LINE:
            raise too_long(place)
        text = clean(text or "", place, counts)
        if text and not text.isspace():
            yield text
        else:
            counts.repaired["null"] += 1


def _require_column(place: str, field: str, found: Iterable[str]) -> None:
    if field not in found:
        raise CorpusError(
            f"{place}: expected a column {field!r}, found {', '.join(found) or 'none'}. Name the right one: "
            "SOURCE#COLUMN"
        )


def _parquet_values(file: InputFile, field: str, counts: ReadCounts) -> Iterator[tuple[str, Any]]:
    """Yield place and value of every row."""
    require_extra("parquet", str(file.path))
    import pyarrow
    from pyarrow import parquet

    place, row, before = str(file.path), 0, counts.bytes_read
    with opened_on_disk(file.path) as stream:
        try:
            with parquet.ParquetFile(stream, buffer_size=_BUFFER) as table:
                _require_column(place, field, table.schema_arrow.names)
                for batch in table.iter_batches(_ROWS_AT_ONCE, columns=[field]):
                    for value in batch.column(field):
                        row += 1
                        yield f"{place}, row {row}", value.as_py()
                    counts.bytes_read = before + file.size * row // table.metadata.num_rows
                counts.bytes_read = before + file.size
        except (pyarrow.ArrowException, OSError, ValueError, LookupError, TypeError, ArithmeticError) as error:
            place += f", row {row}" * isinstance(error, UnicodeDecodeError)
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise CorpusError(
                f"{place}: expected a whole Parquet file with text in UTF-8, got one that cannot be read ({reason}). "
                "Fetch it again"
            ) from error


def _json_values(lines: Iterable[tuple[str, str]], field: str) -> Iterator[tuple[str, Any]]:
    for place, line in lines:
        if line and not line.isspace():
            try:
                row = json.loads(line)
                found = f"a {type(row).__name__}"
            except (ValueError, RecursionError) as error:
                row, found = None, f"{line[:40]!r} ({str(error)[:100]})"
            if not isinstance(row, dict):
                raise CorpusError(f"{place}: expected one JSON object per line, got {found}. Correct it")
            _require_column(place, field, row)
            yield place, row[field]


def _plain_text(file: InputFile, lines: Iterable[tuple[str, str]], counts: ReadCounts) -> Iterator[str]:
    """The documents of plain text: a Markdown file, what is between blank lines, or else each line."""
    whole = file.suffix == ".md"
    divided = whole or _is_divided(file)
    document, size = list[str](), 0
    for place, line in chain(lines, [("", "")]):  # the last one ends the document
        text = clean(line, place, counts)
        blank = not text.strip()
        ends = not place or (not whole and (blank or not divided))
        if document and (ends or size + len(text) > LONGEST_DOCUMENT):
            yield "\n".join(document).rstrip("\n")
            document, size = [], 0
            if not ends:
                counts.repaired["cut_documents"] += 1
        if document or not blank:
            document.append(text)
            size += len(text) + 1


def _is_divided(file: InputFile) -> bool:
    """Whether blank lines are no rare exception in the beginning of a file, and so divide it."""
    with opened(file) as (_, content):
        lines = content.read(_BEGINNING).strip().split(b"\n")
    return sum(not line.strip() for line in lines) * _LINES_A_DOCUMENT >= len(lines)
