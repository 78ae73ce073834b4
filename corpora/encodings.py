"""From bytes to lines of text: in UTF-8, or in the encoding that a byte order mark or the caller names."""

import codecs
import difflib
from collections.abc import Iterable, Iterator
from itertools import chain

from spectool import CorpusError
from spectool.corpora.documents import LONGEST_LINE, Reading, too_long

# Longest first, because the mark of UTF-32 begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# What a file that is named as text may be, by its first bytes, and what to do.
_NOT_TEXT = {
    b"%PDF-": "a PDF. Save it as plain text, for example with pdftotext",
    b"PK\x03\x04": "a zip archive, as .docx, .odt and .epub files are. Unpack it, or save the document as plain text",
    b"\xd0\xcf\x11\xe0": "an old Office document. Save it as plain text",
    b"\x1f\x8b": "a gzip archive. Let its name end in .gz",
    b"\xfd7zXZ": "an xz archive. Let its name end in .xz",
    b"\x28\xb5\x2f\xfd": "a zstd archive. Let its name end in .zst",
    b"PAR1": "a Parquet file. Let its name end in .parquet",
}
_OLD = ("cp1250", "iso-8859-2", "cp1251", "koi8-u", "cp1254")  # Polish, Ukrainian, Crimean Tatar and Turkish
_SURE = 4  # this many letters that are valid in an encoding, or bytes that are not, are no coincidence
_SAMPLE = 1 << 16  # bytes that tell damage from another encoding
_SHOWN = 20  # bytes of the place that an error shows in other encodings, before it and after it
_DROPPED = "\udfff"  # stands for an undecodable byte; no strict decoder gives it
codecs.register_error("spectool-drop", lambda error: (_DROPPED * (error.end - error.start), error.end))  # type: ignore[attr-defined]


def known_encoding(name: str | None) -> str | None:
    """The usual name of an encoding, or None for UTF-8.

    >>> known_encoding("windows-1250"), known_encoding("UTF8")
    ('cp1250', None)

    Raises:
        CorpusError: There is no such encoding of text.
    """
    if name is None:
        return None
    try:
        usual = codecs.lookup(name).name.replace("_", "-")
        "".encode(usual)  # refuses codecs that are not of text
    except (LookupError, ValueError):
        near = difflib.get_close_matches(name.lower(), [*_OLD, "utf-8", "utf-16", "utf-16-le", "utf-16-be"], 1)
        step = f"Did you mean {near[0]}?" if near else f"Name one such as {', '.join(_OLD)} or utf-16"
        raise CorpusError(f"{name}: expected the name of a text encoding, got an unknown one. {step}") from None
    return None if usual in ("utf-8", "utf-8-sig") else usual


def text_blocks(path: str, chunks: Iterable[bytes], reading: Reading) -> Iterator[tuple[int, str]]:
    """Decode a stream of bytes, and yield blocks of whole lines, each with the number of its first line (from 1).

    A byte order mark is removed, CRLF becomes LF, and lines are joined by LF. The text is not yet clean.

    Args:
        path: The file as the user named it, for errors.
        chunks: Its bytes, decompressed, in pieces of any size.
        reading: The encoding, and whether damaged bytes are dropped and counted as ``invalid_bytes``.

    Raises:
        CorpusError: Bytes that are not text in the file's encoding, or a line above `LONGEST_LINE`.
    """
    line, pending = 1, ""
    for text in _decoded(path, chunks, reading):
        pending += text
        first, cut = pending.find("\n"), pending.rfind("\n")
        if (first if first >= 0 else len(pending)) > LONGEST_LINE:
            raise too_long(f"{path}:{line}")
        if cut >= 0:
            yield line, pending[: cut + 1].replace("\r\n", "\n")[:-1]
            line += pending.count("\n")
            pending = pending[cut + 1 :]
    if pending:
        yield line, pending


def _decoded(path: str, chunks: Iterable[bytes], reading: Reading) -> Iterator[str]:
    stream, head = filter(None, chunks), b""
    while len(head) < len(codecs.BOM_UTF32_LE) and (chunk := next(stream, b"")):
        head += chunk
    if kind := next((kind for start, kind in _NOT_TEXT.items() if head.startswith(start)), None):
        raise CorpusError(f"{path}: expected text, got {kind}")
    encoding = _encoding_of(path, head, reading.encoding)
    utf8 = encoding == "utf-8"
    decoder = codecs.getincrementaldecoder(encoding)("spectool-drop" if reading.repair and not utf8 else "strict")
    line, offset, after_letters = 1, 0, False
    for chunk in chain([head], stream, [b""]):
        if not (after_letters or encoding.startswith("utf-")) and _is_utf8(chunk):
            raise CorpusError(f"{path}: expected {encoding}, got UTF-8. Leave out --encoding {reading.encoding}")
        before = len(decoder.getstate()[0])
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            at = offset - before + error.start
            place = f"{path}:{line + error.object[: error.start].decode(encoding, 'ignore').count(chr(10))}"
            if not utf8:
                raise CorpusError(
                    f"{place}: expected {encoding}, got {_bytes(error)} at byte {at}, which {encoding} does not "
                    "define. Name another encoding with --encoding"
                ) from error
            if refused := not_utf8(place, error, at, reading.repair, after_letters):
                raise refused from error
            decoder.errors = "spectool-drop"
            text = decoder.decode(chunk, final=not chunk)
            decoder.errors = "strict"
        if reading.repair and _DROPPED in text:
            reading.repaired("invalid_bytes", text.count(_DROPPED))
            text = text.replace(_DROPPED, "")
        after_letters = after_letters or not text.isascii()
        line += text.count("\n")
        yield text if offset else text.removeprefix("\ufeff")
        offset += len(chunk)


def _encoding_of(path: str, head: bytes, asked: str | None) -> str:
    """The encoding of a file that begins with ``head``."""
    marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)
    if marked and asked and not asked.startswith(marked):
        raise CorpusError(
            f"{path}: expected {asked}, got a file with the byte order mark of {marked}. Leave out --encoding {asked}"
        )
    even, odd = head[::2].count(0), head[1::2].count(0)  # in UTF-16, spaces and line ends have a zero byte on one side
    if not marked and asked in (None, "utf-16") and max(even, odd) > max(1, len(head) // 200, 10 * min(even, odd)):
        wide = "utf-16-le" if odd > even else "utf-16-be"
        raise CorpusError(
            f"{path}: expected {asked or 'UTF-8'}, got text that looks like {wide} without a byte order mark. "
            f"Read it with --encoding {wide}"
        )
    if not marked and asked in ("utf-16", "utf-32") and head:
        raise CorpusError(
            f"{path}: expected {asked}, got a file without its byte order mark. Leave out --encoding {asked} if it is "
            f"UTF-8, or name {asked}-le or {asked}-be"
        )
    return asked or marked or "utf-8"


def _is_utf8(chunk: bytes) -> bool:
    """Whether a piece of a file, whose end may cut a character, is beyond doubt UTF-8."""
    try:
        return _letters(codecs.getincrementaldecoder("utf-8")().decode(chunk)) >= _SURE
    except UnicodeDecodeError:
        return False


def _letters(text: str) -> int:
    return len(text) - len(text.encode("ascii", "ignore"))


def not_utf8(place: str, error: UnicodeDecodeError, at: int, repair: bool, after_letters: bool) -> CorpusError | None:
    """The error for bytes that are not UTF-8, or None if they are damage that ``repair`` allows to drop.

    Text in another encoding is an error even then, because without its letters it would be another text.

    Args:
        place: File and line, or row, of the first of them.
        error: What was to be decoded, and where it failed.
        at: Where that is in the file, in bytes.
        repair: Whether damage may be dropped.
        after_letters: Whether there were letters in UTF-8 before all this.
    """
    raw, start = error.object, error.start
    sample = raw[start : start + _SAMPLE]
    valid = sample.decode(errors="ignore")
    lost = len(sample) - len(valid.encode())
    foreign = lost > _letters(valid) and not after_letters and raw[:start].isascii()
    if repair and not (foreign and lost >= _SURE):
        return None
    got = f"{place}: expected UTF-8, got {_bytes(error)} at byte {at}"
    if not foreign:
        return CorpusError(
            f"{got}. The text around it is UTF-8, so this place is damaged. Correct it, or drop and count such bytes: "
            "--on-error repair"
        )
    if b"\0" in sample:
        return CorpusError(f"{got}. The file is not text: it has zero bytes. Name a file of text")
    shown = raw[max(0, start - _SHOWN) : start + _SHOWN]
    readings = "; ".join(f"in {name} {shown.decode(name, 'replace').strip()!r}" for name in _OLD)
    return CorpusError(
        f"{got}. The file is in another encoding. The place reads {readings}. Name the right one, such as "
        f"--encoding {_OLD[0]}"
    )


def _bytes(error: UnicodeDecodeError) -> str:
    raw = error.object[error.start : error.end]
    return f"the byte{'s' if len(raw) > 1 else ''} {raw.hex(' ')}"
