"""From bytes to clean text: UTF-8, NFC, no control characters.

Whole blocks are tested at once and lines only where a block fails. Real text is almost always clean, and every
normalization form is closed under taking substrings.
"""

import codecs
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from spectool import CorpusError
from spectool.corpora.documents import LONGEST, Reading, too_long
from spectool.corpora.encodings import as_utf8, undecodable
from spectool.corpora.words import combining_marks

# Tab and line feed are text. A carriage return that is left here had no line feed after it.
_UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_BREAKS = re.compile("[\x0b-\x0d\x85]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_MARKS_AT_ONCE = 200  # more on one letter are no text, and NFC sorts them in quadratic time


def is_clean(text: str) -> bool:
    """True when `clean` would return ``text`` as it is."""
    return unicodedata.is_normalized("NFC", text) and not _UNWANTED.search(text)


def clean(text: str, place: str, reading: Reading) -> str:
    """Return ``text`` in NFC, line ends as LF, without control characters.

    Characters that break a line (lone carriage return, vertical tab, form feed, next line) become LF, so that no two
    words grow together. The other controls go. Both are counted as ``control_characters``.

    Args:
        text: Decoded text, perhaps with lone surrogates from JSON escapes.
        place: File and line, for the error.
        reading: Whether to drop lone surrogates; its counts grow by what was done.

    Raises:
        CorpusError: ``text`` has lone surrogates, which no UTF-8 file can hold, and repairs are off; or more
            combining marks in a row than any writing has.
    """
    if is_clean(text):
        return text
    text = text.replace("\r\n", "\n")
    if _UNWANTED.search(text):
        text, surrogates = _SURROGATES.subn("", text)
        if surrogates and not reading.repair:
            raise CorpusError(
                f"{place}: expected text, got {surrogates} lone surrogate(s), which are half characters. "
                f"Correct the file, or drop and count them: --on-error repair"
            )
        text, breaks = _BREAKS.subn("\n", text)
        text, controls = _UNWANTED.subn("", text)
        reading.repaired("surrogates", surrogates)
        reading.repaired("control_characters", breaks + controls)
    if not unicodedata.is_normalized("NFC", text):
        if any(len(run.group()) > _MARKS_AT_ONCE for run in _marks().finditer(text)):
            raise CorpusError(
                f"{place}: expected text, got more than {_MARKS_AT_ONCE:,} combining marks in a row. Correct the file"
            )
        text = unicodedata.normalize("NFC", text)
        reading.repaired("not_nfc")
    return text


@cache
def _marks() -> re.Pattern[str]:
    return re.compile(f"[{combining_marks()}]+")


def decode(raw: bytes, place: Callable[[int], str], offset: int, reading: Reading, after_utf8: bool = False) -> str:
    """Decode UTF-8.

    Args:
        raw: Whole lines, or one value.
        place: Names file and line (or row) of a byte, given its index in ``raw``.
        offset: Where ``raw`` starts in the file or value, in bytes after decompression.
        reading: Whether to drop damage, counted as ``invalid_bytes``.
        after_utf8: Whether there were letters in UTF-8 before ``raw``.

    Raises:
        CorpusError: Invalid UTF-8 and repairs are off, or text in another encoding.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        if refused := undecodable(place(error.start), raw, error, offset, after_utf8, reading.repair):
            raise refused from error
    text = raw.decode(errors="ignore")
    reading.repaired("invalid_bytes", len(raw) - len(text.encode()))
    return text


def text_blocks(path: str, chunks: Iterable[bytes], reading: Reading) -> Iterator[tuple[int, str]]:
    """Cut a byte stream into blocks of whole lines and decode them.

    Strips a byte order mark at the start and turns CRLF into LF. The text is not yet clean.

    Args:
        path: The file as the user named it, for errors.
        chunks: Its bytes, decompressed, in pieces of any size.
        reading: See `decode`; its encoding is that of the bytes.

    Yields:
        The number of a block's first line (from 1), and its lines joined by LF.

    Raises:
        CorpusError: Bytes that are no text in the file's encoding, or a line above `LONGEST`.
    """
    line, offset, after_utf8 = 1, 0, False
    for block in _whole_lines(path, as_utf8(path, chunks, reading)):
        body = block.removeprefix(codecs.BOM_UTF8) if offset == 0 else block

        def place(index: int, first: int = line, body: bytes = body) -> str:
            line_ends = body.count(b"\n", 0, index)
            return f"{path}:{first + line_ends}"

        text = decode(body, place, offset + len(block) - len(body), reading, after_utf8)
        after_utf8 = after_utf8 or not text.isascii()
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        yield line, text.removesuffix("\n")
        line += block.count(b"\n")
        offset += len(block)


def _whole_lines(path: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    pending: list[bytes] = []
    waiting = lines = 0
    for chunk in chunks:
        cut = chunk.rfind(b"\n") + 1
        if waiting + (chunk.find(b"\n") if cut else len(chunk)) > LONGEST:
            raise too_long(f"{path}:{lines + 1}")
        if cut:
            yield b"".join([*pending, chunk[:cut]])
            lines += chunk.count(b"\n")
            pending, waiting = [chunk[cut:]], len(chunk) - cut
        else:
            pending.append(chunk)
            waiting += len(chunk)
    if last := b"".join(pending):
        yield last
