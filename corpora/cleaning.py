"""From bytes to lines of text, and to clean text: in NFC, with LF as line end and without control characters."""

import codecs
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from spectool import CorpusError
from spectool.corpora.files import InputFile, opened

LONGEST_LINE = 16 * 2**20
"""Maximum bytes of a line, and characters of a value of a table: a document is held in memory several times."""
_STRAY = 2, 100  # zero bytes in a line that are repaired: 2, and one more for each 100 bytes; UTF-16 has more
_MARKS = {"UTF-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "UTF-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)}
_LINES_A_STEP = 1000  # between two steps of a progress bar
# Tab and line feed are text. A carriage return that is left here had no line feed after it.
_UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\ud800-\udfff]")
_BREAKS = re.compile("[\x0b-\x0d\x85]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_ACCENTS_AT_ONCE = 200  # combining marks: more on one letter are not text, and NFC sorts them in quadratic time
_ACCENTS = re.compile(rf"[^\w\s]{{{_ACCENTS_AT_ONCE + 1},}}")  # long enough for them, if they are no punctuation


@dataclass(slots=True)
class ReadCounts:
    """What one iteration over a corpus has read so far. Mutable: the readers add to it."""

    documents: int = 0  # documents yielded
    characters: int = 0  # code points in their texts
    bytes_read: int = 0  # on disk, compressed where the file is
    # What had to be changed or left out, by kind: ``control_characters`` in characters, ``not_nfc`` in documents,
    # ``null`` in rows without a text, ``cut_documents`` in places where a document was too long.
    repaired: Counter[str] = field(default_factory=Counter)


def text_lines(file: InputFile, counts: ReadCounts) -> Iterator[tuple[str, str]]:
    """Yield the lines of a file with their places, such as ``text.txt:1``, decoded but not yet clean.

    Line ends are removed, and so are byte order marks where a line begins, because files may have been joined.
    ``counts.bytes_read`` follows the position on disk.

    Raises:
        CorpusError: Bytes that are not UTF-8, a line above `LONGEST_LINE`, or an archive that is damaged or breaks off.
    """
    before, begins_with_zero = counts.bytes_read, False
    with opened(file) as (on_disk, content):
        for number in count(1):
            raw = content.readline(LONGEST_LINE + 1)
            begins_with_zero |= number == 1 and raw.startswith(b"\0")
            if number % _LINES_A_STEP == 1:
                counts.bytes_read = before + on_disk.tell()
            if not raw:
                break
            place = f"{file.path}:{number}"
            if len(raw) > LONGEST_LINE:
                raise too_long(place)
            try:
                line = raw.removeprefix(codecs.BOM_UTF8).decode()
            except UnicodeDecodeError as error:
                encoding = next((name for name, marks in _MARKS.items() if raw.startswith(marks)), "CP1250")
                found = error.object[error.start : error.end].hex(" ")
                raise _not_text(place, f"the bytes {found}", encoding) from error
            if raw.count(0) > _STRAY[0] + len(raw) // _STRAY[1]:
                raise _not_text(place, "zero bytes", "UTF-16BE" if begins_with_zero else "UTF-16LE")
            yield place, line.removesuffix("\n").removesuffix("\r")
    counts.bytes_read = before + file.size


def too_long(place: str) -> CorpusError:
    """The error for a line or value above `LONGEST_LINE`."""
    return CorpusError(
        f"{place}: expected at most {LONGEST_LINE >> 20} MiB in one line or text, got more. Put each "
        "document on a line of its own, or break long lines at spaces: fold -s -w 100000 FILE > NEW"
    )


def _not_text(place: str, found: str, encoding: str) -> CorpusError:
    return CorpusError(
        f"{place}: expected UTF-8, got {found}. If this is text in another encoding, such as {encoding}, convert it: "
        f"iconv -f {encoding} -t UTF-8 FILE > NEW. To drop what is damaged: iconv -c -f UTF-8 -t UTF-8 FILE > NEW"
    )


def clean(text: str, place: str, counts: ReadCounts) -> str:
    """The same text in NFC, with LF as line end and without control characters.

    Characters that break a line (lone carriage return, vertical tab, form feed, next line) become LF, so that words do
    not run together. Other control characters and byte order marks are removed. Both are counted as
    ``control_characters``. Lone surrogates, as from JSON escapes, are an error, which names the ``place``.
    """
    text = text.replace("\r\n", "\n")
    if _UNWANTED.search(text):
        if _SURROGATES.search(text):
            raise CorpusError(f"{place}: expected text, got a lone surrogate, which is half a character. Correct it")
        text, breaks = _BREAKS.subn("\n", text)
        text, controls = _UNWANTED.subn("", text)
        counts.repaired["control_characters"] += breaks + controls
    if not unicodedata.is_normalized("NFC", text):
        if any(sum(map(bool, map(unicodedata.combining, run))) > _ACCENTS_AT_ONCE for run in _ACCENTS.findall(text)):
            raise CorpusError(
                f"{place}: expected text, got more than {_ACCENTS_AT_ONCE} combining marks in a row. Correct the file"
            )
        text = unicodedata.normalize("NFC", text)
        counts.repaired["not_nfc"] += 1
    return text
