"""Documents, and the counts of what was read and repaired, which all sources share."""

import dataclasses
from collections import Counter
from dataclasses import dataclass

from spectool import CorpusError

LONGEST_LINE = 16 * 2**20
"""Maximum bytes of a line, and characters of a value of a table: a document is held in memory several times."""

LONGEST_DOCUMENT = 2**20
"""Number of characters at which lines of plain text are no longer joined to one document."""


@dataclass(frozen=True, slots=True)
class Document:
    """A whole document, in NFC and without control characters."""

    id: str  # ``file:line`` or ``file:row``, from 1
    text: str  # never empty and never only white space; may contain line ends


@dataclass(slots=True)
class ReadCounts:
    """What one iteration over a corpus has read so far. Mutable: the readers add to it."""

    documents: int = 0  # documents yielded
    characters: int = 0  # code points in their texts
    bytes_read: int = 0  # on disk, compressed where the file is
    # What had to be changed or left out, by kind: ``control_characters`` in characters, ``not_nfc`` in documents,
    # ``null`` in rows without a text, ``cut_documents`` in places where a document went on beyond `LONGEST_DOCUMENT`.
    repaired: Counter[str] = dataclasses.field(default_factory=Counter)


def too_long(place: str) -> CorpusError:
    """The error for a line or value above `LONGEST_LINE`."""
    return CorpusError(
        f"{place}: expected at most {LONGEST_LINE >> 20} MiB in one line or text, got more. Put each "
        "document on a line of its own, or break long lines at spaces: fold -s -w 100000 FILE > NEW"
    )
