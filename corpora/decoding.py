"""From bytes to lines of text, which is UTF-8."""

import codecs
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from spectool import CorpusError
from spectool.corpora.documents import LONGEST_LINE, too_long

# Longest first, because the mark of UTF-32 begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}

_MARK = "\ufeff"
_MARK_OF_LINE = re.compile(f"^{_MARK}", re.MULTILINE)


def text_blocks(path: str, chunks: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Decode a stream of bytes, and yield blocks of whole lines, each with the number of its first line (from 1).

    A byte order mark is removed where the file or a line begins, because files may have been joined. CRLF becomes LF,
    and lines are joined by LF. The text is not yet clean.

    Args:
        path: The file as the user named it, for errors.
        chunks: Its bytes, decompressed, in pieces of any size.

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
            marked = (name for mark, name in _MARKS.items() if error.object.startswith(mark) and line == 1)
            found = f"the bytes {error.object[error.start : error.end].hex(' ')}"
            raise _not_text(f"{path}:{line}", found, next(marked, "CP1250")) from error
        if text.count("\0") * 100 > len(text):  # as in UTF-16 without a mark, where they look like control characters
            raise _not_text(f"{path}:{line}", "zero bytes", "UTF-16LE")
        if len(text.partition("\n")[0].removesuffix("\r")) > LONGEST_LINE:
            raise too_long(f"{path}:{line}")
        lines, end, rest = text.rpartition("\n") if piece else (text, "", "")
        if lines or end:
            block = f"{lines}{end}".replace("\r\n", "\n").removesuffix("\n")
            if _MARK in block:
                block = _MARK_OF_LINE.sub("", block)
            yield line, block
            line += block.count("\n") + 1


def _not_text(place: str, found: str, encoding: str) -> CorpusError:
    return CorpusError(
        f"{place}: expected UTF-8, got {found}. If this is text in another encoding, such as {encoding}, convert it: "
        f"iconv -f {encoding} -t UTF-8 FILE > NEW. To drop what is damaged: iconv -c -f UTF-8 -t UTF-8 FILE > NEW"
    )
