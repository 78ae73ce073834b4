"""From bytes to lines of text, and to clean text: in NFC, with LF as line end and without control characters."""

import codecs
import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain

from spectool import CorpusError
from spectool.corpora.documents import LONGEST_LINE, ReadCounts, too_long

# Longest first, because the mark of UTF-32 begins with that of UTF-16.
_ENCODINGS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
# Tab and line feed are text. A carriage return that is left here had no line feed after it.
_UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\ud800-\udfff]")
_BREAKS = re.compile("[\x0b-\x0d\x85]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_ACCENTS_AT_ONCE = 200  # combining marks: more on one letter are not text, and NFC sorts them in quadratic time
_ACCENTS = re.compile(rf"[^\w\s]{{{_ACCENTS_AT_ONCE + 1},}}")  # long enough for them, if they are no punctuation


def text_blocks(path: str, chunks: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Decode a stream of bytes, and yield blocks of whole lines, each with the number of its first line (from 1).

    A byte order mark is removed where the file or a line begins, because files may have been joined. CRLF becomes LF,
    and lines are joined by LF. The text is not yet clean. Errors name the file by ``path``.

    Raises:
        CorpusError: Bytes that are not UTF-8, or a line above `LONGEST_LINE`.
    """
    decode = codecs.getincrementaldecoder("utf-8-sig")().decode
    line, rest = 1, ""  # of the file, and the beginning of that line
    for piece in chain(chunks, [b""]):
        try:
            text = rest + decode(piece, not piece)
        except UnicodeDecodeError as error:
            line += error.object[: error.start].count(b"\n")
            marked = (name for mark, name in _ENCODINGS.items() if error.object.startswith(mark) and line == 1)
            found = f"the bytes {error.object[error.start : error.end].hex(' ')}"
            raise _not_text(f"{path}:{line}", found, next(marked, "CP1250")) from error
        if text.count("\0") * 100 > len(text):  # as in UTF-16 without a mark, where they look like control characters
            raise _not_text(f"{path}:{line}", "zero bytes", "UTF-16LE")
        if len(text.partition("\n")[0].removesuffix("\r")) > LONGEST_LINE:
            raise too_long(f"{path}:{line}")
        lines, end, rest = text.rpartition("\n") if piece else (text, "", "")
        if lines or end:
            block = f"\n{lines}{end}".replace("\r\n", "\n").replace("\n\ufeff", "\n")[1:].removesuffix("\n")
            yield line, block
            line += block.count("\n") + 1


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
