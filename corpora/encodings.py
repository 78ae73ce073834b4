"""From bytes to lines of text: in UTF-8, or in the encoding that a byte order mark or the caller names."""

import codecs
from collections.abc import Iterable, Iterator
from itertools import chain

from spectool import CorpusError
from spectool.corpora.documents import LONGEST_LINE, too_long

# Longest first, because the mark of UTF-32 begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_HEAD = 1000  # bytes of a binary file among which there is nearly always a zero byte
_WIDEST = 4  # bytes of a character
_SURE = 4  # letters that are valid UTF-8 are no coincidence


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
        "\n".encode(usual)  # refuses codecs that are not of text
    except (LookupError, ValueError):
        raise CorpusError(
            f"{name}: expected the name of a text encoding, got an unknown one. Name one such as cp1250, iso-8859-2, "
            "cp1251, koi8-u, cp1254 or utf-16"
        ) from None
    return None if usual in ("utf-8", "utf-8-sig") else usual


def text_blocks(path: str, chunks: Iterable[bytes], asked: str | None) -> Iterator[tuple[int, str]]:
    """Decode a stream of bytes, and yield blocks of whole lines, each with the number of its first line (from 1).

    A byte order mark is removed, CRLF becomes LF, and lines are joined by LF. The text is not yet clean.

    Args:
        path: The file as the user named it, for errors.
        chunks: Its bytes, decompressed, in pieces of any size.
        asked: The encoding that the user named, as `known_encoding` gives it.

    Raises:
        CorpusError: Bytes that are not text in the file's encoding, or a line above `LONGEST_LINE`.
    """
    stream, head = filter(None, chunks), b""
    while len(head) < len(codecs.BOM_UTF32_LE) and (chunk := next(stream, b"")):
        head += chunk
    if head.startswith(b"%PDF"):
        raise CorpusError(
            f"{path}: expected text, got a PDF. Extract its text first, for example: pdftotext FILE NEW.txt"
        )
    encoding = _encoding_of(path, head, asked)
    pieces: Iterator[bytes] = chain([head], stream)
    if "\n".encode(encoding) != b"\n":
        encoding, pieces = "utf-8", _as_utf8(path, pieces, encoding)
    line, rest = 1, b""
    for piece in chain(pieces, [None]):
        lines, end, rest = (rest, b"", b"") if piece is None else (rest + piece).rpartition(b"\n")
        if lines or end:
            text = _decoded(path, line, lines + end, encoding)
            yield line, text.removeprefix("\ufeff") if line == 1 else text
            line += lines.count(b"\n") + 1
        elif len(rest) > _WIDEST * LONGEST_LINE:
            raise too_long(f"{path}:{line}")


def _encoding_of(path: str, head: bytes, asked: str | None) -> str:
    """The encoding of a file that begins with ``head``."""
    marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")
    if asked and (marked or asked in ("utf-16", "utf-32")) and not marked.startswith(asked):
        got = f"the byte order mark of {marked}" if marked else "no byte order mark"
        other = "" if marked else f", or name {asked}-le or {asked}-be"
        raise CorpusError(f"{path}: expected {asked}, got {got}. Leave out --encoding {asked}{other}")
    return marked or asked or "utf-8"


def _as_utf8(path: str, pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """A stream in an encoding whose line ends are not those of ASCII, in UTF-8."""
    line = 1
    try:
        for text in codecs.iterdecode(pieces, encoding):
            yield text.encode()
            line += text.count("\n")
    except UnicodeDecodeError as error:
        line += error.object[: error.start].decode(encoding, "ignore").count("\n")
        raise _not_text(f"{path}:{line}", encoding, error) from error


def _decoded(path: str, line: int, raw: bytes, encoding: str) -> str:
    """The text of whole lines, without the last line end; ``line`` is the number of the first."""
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line += raw[: error.start].count(b"\n")
        place = f"{path}:{line}"
        raise (_binary(place, encoding) if 0 in raw[:_HEAD] else _not_text(place, encoding, error)) from error
    if raw.count(0) * 100 > len(raw):  # UTF-8 and most other encodings would take them for control characters
        raise _binary(f"{path}:{line}", encoding)
    if encoding != "utf-8" and not raw.isascii() and _is_utf8(raw):
        raise CorpusError(f"{path}:{line}: expected {encoding}, got UTF-8. Leave out --encoding {encoding}")
    text = text.replace("\r\n", "\n")
    if len(text.partition("\n")[0]) > LONGEST_LINE:
        raise too_long(f"{path}:{line}")
    return text.removesuffix("\n")


def _is_utf8(raw: bytes) -> bool:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return False
    return len(text) - len(text.encode("ascii", "ignore")) >= _SURE


def _binary(place: str, encoding: str) -> CorpusError:
    return CorpusError(
        f"{place}: expected {encoding}, got zero bytes, so this is not text. Name another file, or the encoding if it "
        "has such bytes: --encoding utf-16-le"
    )


def _not_text(place: str, encoding: str, error: UnicodeDecodeError) -> CorpusError:
    raw = error.object[error.start : error.end]
    if encoding == "utf-8" and _is_utf8(error.object[: error.start]):
        step = "The text before is UTF-8, so this place is damaged or cut off. Drop such bytes: iconv -c -f utf-8"
    else:  # not every command has --encoding
        step = "Name the encoding of the file, such as --encoding cp1250, or convert it, with -c if it is damaged: "
        step += "iconv -f cp1250"
    return CorpusError(
        f"{place}: expected {encoding}, got the byte{'s' * (len(raw) > 1)} {raw.hex(' ')}. {step} -t utf-8 FILE > NEW"
    )
