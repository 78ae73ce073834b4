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
        asked: The encoding that the user named, as `known_encoding` gives it; a byte order mark goes before it.

    Raises:
        CorpusError: Bytes that are not text in the file's encoding, or a line above `LONGEST_LINE`.
    """
    pieces, head = iter(chunks), b""
    while len(head) < len(codecs.BOM_UTF32_LE) and (piece := next(pieces, b"")):
        head += piece
    encoding = next((name for mark, name in _MARKS.items() if head.startswith(mark)), asked or "utf-8")
    if encoding in ("utf-16", "utf-32"):
        raise CorpusError(
            f"{path}: expected {asked}, got no byte order mark. Name the order of the bytes: --encoding {asked}-le or "
            f"{asked}-be"
        )
    decode = codecs.getincrementaldecoder(encoding)().decode
    line, rest = 1, ""  # of the file, and the beginning of that line
    for piece in chain([head], pieces, [b""]):
        try:
            text = rest + decode(piece, not piece)
        except UnicodeDecodeError as error:
            line += (rest + error.object[: error.start].decode(encoding, "ignore")).count("\n")
            found = f"the bytes {error.object[error.start : error.end].hex(' ')}"
            raise _not_text(f"{path}:{line}", encoding, found) from error
        if text.count("\0") * 100 > len(text):  # UTF-8 and most other encodings would take them for control characters
            raise _not_text(f"{path}:{line}", encoding, "zero bytes")
        if encoding != "utf-8" and _is_utf8(piece):
            raise CorpusError(f"{path}:{line}: expected {encoding}, got UTF-8. Leave out --encoding {encoding}")
        lines, end, rest = text.rpartition("\n") if piece else (text, "", "")
        if lines or end:
            block = f"{lines}{end}".replace("\r\n", "\n").removesuffix("\n")
            if len(block.partition("\n")[0]) > LONGEST_LINE:
                raise too_long(f"{path}:{line}")
            yield line, block.removeprefix("\ufeff") if line == 1 else block
            line += block.count("\n") + 1
        if len(rest) > LONGEST_LINE + 1:  # which may be the CR of a CRLF
            raise too_long(f"{path}:{line}")


def _is_utf8(raw: bytes) -> bool:
    """Whether bytes are surely UTF-8, of which the last character may be cut off."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(raw)
    except UnicodeDecodeError:
        return False
    return len(text) - len(text.encode("ascii", "ignore")) >= _SURE


def _not_text(place: str, encoding: str, found: str) -> CorpusError:
    return CorpusError(
        f"{place}: expected {encoding}, got {found}. Name another file if this is no text, or its encoding, such as "
        f"--encoding cp1250 or utf-16-le, or drop what is damaged: iconv -c -f {encoding} -t utf-8 FILE > NEW"
    )
