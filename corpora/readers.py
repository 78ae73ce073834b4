"""Clean documents out of one local file of text, JSON lines or Parquet.

Memory does not depend on the size of a file, but Arrow trusts what a Parquet file says of itself, so such a corpus
should come from someone you trust.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from spectool import CorpusError, require_extra
from spectool.corpora.cleaning import clean, text_blocks
from spectool.corpora.documents import LONGEST_DOCUMENT, LONGEST_LINE, Document, ReadCounts, too_long
from spectool.corpora.files import InputFile, byte_chunks, opened

_BEGINNING = 1 << 16  # characters of a file that tell whether blank lines divide it
_LINES_A_DOCUMENT = 100  # on average at most, if they do
_ROWS_AT_ONCE = 64  # of a Parquet file
_BUFFER = 1 << 20  # bytes of each of its columns


def read_file(file: InputFile, field: str, counts: ReadCounts) -> Iterator[Document]:
    """Yield the documents of a file in their order; of a table, the text is in the column ``field``."""
    if file.suffix == ".parquet":
        return _documents(file, _parquet_rows(file, field, counts), f"{file.path}, row ", field, counts)
    blocks = text_blocks(str(file.path), byte_chunks(file, counts))
    if file.suffix in (".jsonl", ".ndjson"):
        return _documents(file, _json_rows(file, blocks), f"{file.path}:", field, counts)
    return _plain_text(file, blocks, counts)


def _documents(
    file: InputFile, rows: Iterable[tuple[int, Mapping[str, Any]]], place: str, field: str, counts: ReadCounts
) -> Iterator[Document]:
    """Yield the documents in rows of a table, given by number, and count rows without a text.

    In errors, ``place`` comes before the number.
    """
    for number, row in rows:
        if field not in row:
            raise CorpusError(
                f"{place}{number}: expected a column {field!r}, found {', '.join(row) or 'none'}. Name the right one: "
                "SOURCE#COLUMN"
            )
        text = row[field]
        if text is not None and not isinstance(text, str):
            raise CorpusError(
                f"{place}{number}: expected text in column {field!r}, got {type(text).__name__}. Name another column: "
                "SOURCE#COLUMN"
            )
        if text is not None and len(text) > LONGEST_LINE:
            raise too_long(f"{place}{number}")
        text = clean(text or "", f"{place}{number}", counts)
        if text and not text.isspace():
            own = row.get("id")
            known = own != "" and isinstance(own, str | int) and not isinstance(own, bool)
            yield Document(str(own) if known else f"{file.name}:{number}", text)
        else:
            counts.repaired["null"] += 1


def _parquet_rows(file: InputFile, field: str, counts: ReadCounts) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number (from 1) and values of every row: the text, and ``id`` where there is one."""
    require_extra("parquet", str(file.path))
    import pyarrow
    from pyarrow import parquet

    place, row, before = str(file.path), 0, counts.bytes_read
    with opened(file.path) as stream:
        try:
            with parquet.ParquetFile(stream, buffer_size=_BUFFER) as table:
                present = table.schema_arrow.names
                read = (
                    [name for name in dict.fromkeys((field, "id")) if name in present] if field in present else present
                )
                for batch in table.iter_batches(_ROWS_AT_ONCE, columns=read):
                    for values in zip(*map(batch.column, read), strict=True):
                        row += 1
                        yield row, {name: value.as_py() for name, value in zip(read, values, strict=True)}
                    counts.bytes_read = before + file.size * row // table.metadata.num_rows
                counts.bytes_read = before + file.size
        except (pyarrow.ArrowException, OSError, ValueError, LookupError, TypeError, ArithmeticError) as error:
            place += f", row {row}" * isinstance(error, UnicodeDecodeError)
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise CorpusError(
                f"{place}: expected a whole Parquet file with text in UTF-8, got one that cannot be read ({reason}). "
                "Fetch it again"
            ) from error


def _lines(blocks: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines of blocks, with their numbers."""
    return chain.from_iterable(enumerate(block.split("\n"), first) for first, block in blocks)


def _json_rows(file: InputFile, blocks: Iterable[tuple[int, str]]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in _lines(blocks):
        if line and not line.isspace():
            try:
                row = json.loads(line)
                found = f"a {type(row).__name__}"
            except (ValueError, RecursionError) as error:
                row, found = None, f"{line[:40]!r} ({str(error)[:100]})"
            if not isinstance(row, dict):
                raise CorpusError(f"{file.path}:{number}: expected one JSON object per line, got {found}. Correct it")
            yield number, row


def _plain_text(file: InputFile, blocks: Iterator[tuple[int, str]], counts: ReadCounts) -> Iterator[Document]:
    """The documents of plain text.

    A Markdown file is one. Another file is divided at blank lines if they are no rare exception in its beginning, and
    else each line is a document.
    """
    first = next(blocks, (1, ""))
    beginning = first[1][:_BEGINNING].strip().split("\n")
    whole = file.suffix == ".md"
    divided = sum(not line.strip() for line in beginning) * _LINES_A_DOCUMENT >= len(beginning)
    document: list[str] = []
    begin = size = 0
    for number, line in chain(_lines(chain([first], blocks)), [(0, "")]):
        text = clean(line, f"{file.path}:{number}", counts)
        blank = not text.strip()
        ends = not number or (not whole and (blank or not divided))
        if document and (ends or size + len(text) > LONGEST_DOCUMENT):
            yield Document(f"{file.name}:{begin}", "\n".join(document).rstrip("\n"))
            document, size = [], 0
            if not ends:
                counts.repaired["cut_documents"] += 1
        if document or not blank:
            begin = begin if document else number
            document.append(text)
            size += len(text) + 1
