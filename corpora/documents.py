"""What every source yields: documents, and the counts of what was read and repaired."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

OnError = Literal["stop", "repair"]
"""What to do with bytes that are no text: raise `CorpusError`, or drop them and count them."""


@dataclass(frozen=True, slots=True)
class Document:
    """One piece of text, never cut, in NFC and without control characters."""

    id: str  # stable name: the source's own ``id``, or ``file:line`` and ``file:row`` (from 1)
    text: str  # never empty and never white space alone. May hold line ends


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

    field: str  # column with the text; plain text has none and takes no notice
    repair: bool  # drop and count what is no text, instead of raising
    counts: ReadCounts  # changed: position on disk, and repairs

    def repaired(self, kind: str, number: int = 1) -> None:
        """Count repairs of a kind; see `ReadCounts`."""
        if number:
            self.counts.repaired[kind] += number


class InputDescription(NamedTuple):
    """One input file as a manifest records it."""

    name: str  # file name, or path below the directory that was opened; never absolute
    size: int  # bytes on disk
    sha256: str  # of the bytes on disk, in hex
