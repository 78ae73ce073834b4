"""Text made clean: in NFC, with LF as line end and without control characters."""

import re
import unicodedata

from spectool import CorpusError
from spectool.corpora.documents import ReadCounts

# Tab and line feed are text. A carriage return that is left here had no line feed after it.
_UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\ud800-\udfff]")
_BREAKS = re.compile("[\x0b-\x0d\x85]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_MARKS_AT_ONCE = 200  # more on one letter are not text, and NFC sorts them in quadratic time
_MARKS = re.compile(rf"[^\w\s]{{{_MARKS_AT_ONCE + 1},}}")  # long enough for them, if they are no punctuation


def clean(text: str, place: str, counts: ReadCounts) -> str:
    """The same text in NFC, with LF as line end and without control characters.

    Characters that break a line (lone carriage return, vertical tab, form feed, next line) become LF, so that words do
    not run together. Other control characters and byte order marks are removed. Both are counted as
    ``control_characters``.

    Args:
        text: Decoded text, perhaps with lone surrogates from JSON escapes, which are an error.
        place: File and line, for the error.
        counts: Its repairs are updated.
    """
    text = text.replace("\r\n", "\n")
    if _UNWANTED.search(text):
        if _SURROGATES.search(text):
            raise CorpusError(f"{place}: expected text, got a lone surrogate, which is half a character. Correct it")
        text, breaks = _BREAKS.subn("\n", text)
        text, controls = _UNWANTED.subn("", text)
        counts.repaired["control_characters"] += breaks + controls
    if not unicodedata.is_normalized("NFC", text):
        if any(sum(map(bool, map(unicodedata.combining, run))) > _MARKS_AT_ONCE for run in _MARKS.findall(text)):
            raise CorpusError(
                f"{place}: expected text, got more than {_MARKS_AT_ONCE} combining marks in a row. Correct the file"
            )
        text = unicodedata.normalize("NFC", text)
        counts.repaired["not_nfc"] += 1
    return text
