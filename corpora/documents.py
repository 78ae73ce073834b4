"""What every source yields: documents, and the counts of what was read and repaired."""

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from spectool import CorpusError
from spectool.corpora.files import FileVersions

OnError = Literal["stop", "repair"]
"""What to do with bytes that are no text: raise `CorpusError`, or drop them and count them."""


@dataclass(frozen=True, slots=True)
class Document:
    """One piece of text, never cut, in NFC and without control characters."""

    id: str  # stable name: the source's own ``id``, or ``file:line`` and ``file:row`` (from 1)
    text: str  # never empty and never white space alone. May hold line ends


LONGEST = 16 * 2**20
"""The longest line, in bytes, or text in a table, in characters: a document is held in memory several times."""


def too_long(place: str) -> CorpusError:
    """Return the error for a line or text above `LONGEST`."""
    return CorpusError(
        f"{place}: expected at most {LONGEST >> 20} MiB in one line or text, got more. Put each document on a line of "
        "its own, or break long lines at spaces: fold -s -w 100000 FILE > NEW"
    )


def missing_column(place: str, field: str, present: list[str]) -> CorpusError:
    """Return the error for a table without the column that was asked for."""
    columns = ", ".join(present) if present else "none"
    return CorpusError(f"{place}: expected a column {field!r}, got these: {columns}. Name the right one: SOURCE#COLUMN")


@dataclass(slots=True)
class ReadCounts:
    """What one iteration over a corpus has read so far. Mutable: the readers add to it."""

    documents: int = 0  # documents yielded
    characters: int = 0  # code points in their texts
    bytes_read: int = 0  # on disk, compressed where the file is; 0 for data sets read through `datasets`
    # What had to be changed or left out, by kind: ``invalid_bytes`` in bytes, ``surrogates`` and ``control_characters``
    # in characters, ``not_nfc`` in documents, ``null`` in rows without a text, ``empty`` in files without a document.
    repaired: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a source is read."""

    field: str  # column with the text; plain text has none
    repair: bool  # drop and count what is no text, instead of raising
    counts: ReadCounts  # changed: position on disk, and repairs
    encoding: str | None = None  # of the files; None for UTF-8, or what a byte order mark says
    versions: FileVersions = dataclasses.field(default_factory=FileVersions)  # changed: the files that were read

    def repaired(self, kind: str, number: int = 1) -> None:
        """Count repairs of a kind; see `ReadCounts`."""
        if number:
            self.counts.repaired[kind] += number
