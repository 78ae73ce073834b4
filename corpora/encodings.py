"""From bytes to lines of text: UTF-8, or another encoding that is named or marked, and a guess where it is neither.

A byte order mark decides by itself. Without one, text is UTF-8 unless the caller names an encoding.
"""

import codecs
import difflib
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from spectool import CorpusError
from spectool.corpora.documents import LONGEST, Reading, too_long

EXAMPLES = "cp1250 or iso-8859-2 (Polish, Czech), cp1251 or koi8-u (Ukrainian), cp1254 (Crimean Tatar, Turkish), utf-16"
"""Encodings that an error may propose, with the languages that used them."""

# Longest first: the mark of UTF-32 begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_NOT_FOR_FILES = {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "utf-7"}
_SURE = 4  # characters of several bytes that make valid UTF-8 no coincidence
_SAMPLE = 1 << 16  # bytes looked at to guess an encoding
_SHOWN = 40  # characters of a guess that are shown
_DROPPED = "\udfff"  # stands for an undecodable byte; no strict decoder gives it
codecs.register_error("spectool-drop", lambda error: (_DROPPED * (error.end - error.start), error.end))  # type: ignore[attr-defined]
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf]")  # half a character, written as if it were one

_CENTRAL = ("ąćęłńóśźż", "áčďéěíňóřšťúůýžäĺľôŕ", "áéíóöőúüű")  # Polish; Czech and Slovak; Hungarian
_CYRILLIC = "абвгдежзийклмнопрстуфхцчшщьюяіїєґыэъёў"
_CANDIDATES = {
    **dict.fromkeys(("cp1250", "iso-8859-2", "cp852"), _CENTRAL),
    **dict.fromkeys(("cp1251", "koi8-u", "cp866", "iso-8859-5"), (_CYRILLIC,)),
    **{"cp1254": ("âçğıîñöşü",), "cp1252": ("àâäæçèéêëîïñòóôöùûüßåøáíúãõ",)},
}
_NEXT_TO_LATIN = re.compile(r"(?<=[A-Za-z])[^\0-\x7f]|[^\0-\x7f](?=[A-Za-z])")  # no letters of another script
_NEUTRAL = frozenset("„”“’‘–—…«»§°№€·\u00a0\u00ad")


def known_encoding(name: str | None) -> str | None:
    """The usual name of an encoding, or None for UTF-8.

    >>> known_encoding("windows-1250"), known_encoding("UTF8")
    ('cp1250', None)

    Raises:
        CorpusError: There is no such encoding for text files.
    """
    if name is None:
        return None
    try:
        found = codecs.lookup(name)
        usual = found.name.replace("_", "-")
        if not getattr(found, "_is_text_encoding", True) or usual in _NOT_FOR_FILES or not found.incrementaldecoder:
            raise LookupError
    except (LookupError, ValueError):
        near = difflib.get_close_matches(name.lower(), [*_CANDIDATES, "utf-8", "utf-16", "utf-16-le", "utf-16-be"], 1)
        step = f"Did you mean {near[0]}?" if near else f"Name one such as {EXAMPLES}"
        raise CorpusError(f"{name}: expected the name of a text encoding, got an unknown one. {step}") from None
    return None if usual in ("utf-8", "utf-8-sig") else usual


def text_blocks(path: str, chunks: Iterable[bytes], reading: Reading) -> Iterator[tuple[int, str]]:
    """Decode a stream of bytes, and cut it into blocks of whole lines.

    A byte order mark is removed, and CRLF becomes LF. The text is not yet clean.

    Args:
        path: The file as the user named it, for errors.
        chunks: Its bytes, decompressed, in pieces of any size.
        reading: The encoding; and whether damaged bytes are dropped and counted as ``invalid_bytes``.

    Yields:
        The number of a block's first line (from 1), and its lines joined by LF.

    Raises:
        CorpusError: Bytes that are not text in the file's encoding, or a line above `LONGEST`.
    """
    line, pending = 1, ""
    for text in _decoded(path, chunks, reading):
        pending += text
        first, cut = pending.find("\n"), pending.rfind("\n")
        if (first if first >= 0 else len(pending)) > LONGEST:
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
    encoding = _encoding_of(path, head, reading.encoding)
    utf8 = encoding == "utf-8"
    decoder = codecs.getincrementaldecoder(encoding)("spectool-drop" if reading.repair and not utf8 else "strict")
    line, offset, compared, after_utf8 = 1, 0, encoding.startswith("utf-"), False
    for chunk in chain([head], stream, [b""]):
        if not compared and not chunk.isascii():
            compared = True
            if _is_utf8(chunk):
                raise CorpusError(f"{path}: expected {encoding}, got UTF-8. Leave out --encoding {reading.encoding}")
        before = len(decoder.getstate()[0])
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            raw, at = error.object, offset - before + error.start
            place = f"{path}:{line + raw[: error.start].decode(encoding, 'ignore').count(chr(10))}"
            if not utf8:
                raise CorpusError(
                    f"{place}: expected {encoding}, got {_bytes(raw[error.start : error.end])} at byte {at}, which "
                    f"{encoding} does not define. Name another encoding with --encoding, such as {EXAMPLES}"
                ) from error
            if refused := not_utf8(place, error, at, reading.repair, after_utf8):
                raise refused from error
            decoder.errors = "spectool-drop"
            text = decoder.decode(chunk, final=not chunk)
            decoder.errors = "strict"
        if reading.repair and _DROPPED in text:
            reading.repaired("invalid_bytes", text.count(_DROPPED))
            text = text.replace(_DROPPED, "")
        after_utf8 = after_utf8 or not text.isascii()
        line += text.count("\n")
        yield text if offset else text.removeprefix("\ufeff")
        offset += len(chunk)


def _encoding_of(path: str, head: bytes, asked: str | None) -> str:
    """What a file that begins with ``head`` is to be decoded from."""
    marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)
    if marked and asked and not asked.startswith(marked):
        raise CorpusError(
            f"{path}: expected {asked}, got a file with the byte order mark of {marked}. Leave out --encoding {asked}"
        )
    if not marked and asked in ("utf-16", "utf-32"):
        raise CorpusError(
            f"{path}: expected {asked} with a byte order mark, got a file without one. "
            f"Say in which order its bytes are: --encoding {asked}-le, or {asked}-be"
        )
    even, odd = head[::2].count(0), head[1::2].count(0)  # in UTF-16, spaces and line ends have a zero byte on one side
    if not (asked or marked) and max(even, odd) > max(1, len(head) // 200) and min(even, odd) * 10 < max(even, odd):
        wide = "utf-16-le" if odd > even else "utf-16-be"
        raise CorpusError(
            f"{path}: expected UTF-8, got text that looks like {wide} without a byte order mark. "
            f"Read it with --encoding {wide}, or convert it: {_iconv(wide)}"
        )
    return asked or marked or "utf-8"


def _is_utf8(chunk: bytes) -> bool:
    """Whether a piece of a file, whose end may cut a character, is beyond doubt UTF-8."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(chunk)
    except UnicodeDecodeError:
        return False
    return _letters(text) >= _SURE


def _letters(text: str) -> int:
    return len(text) - len(text.encode("ascii", "ignore"))


def not_utf8(place: str, error: UnicodeDecodeError, at: int, repair: bool, after_utf8: bool) -> CorpusError | None:
    """The error for bytes that are not UTF-8, or None where they are damage that ``repair`` allows to drop.

    Text in another encoding is an error even then: without its letters it would be another text.

    Args:
        place: File and line of the first of them, or row.
        error: What was to be decoded, and where it failed.
        at: Where that is in the file, in bytes.
        repair: Whether damage may be dropped.
        after_utf8: Whether there were letters in UTF-8 before all this.
    """
    raw, start = error.object, error.start
    sample = raw[start : start + _SAMPLE]
    letters = sample.decode(errors="ignore")
    lost, valid = len(sample) - len(letters.encode()), _letters(letters)
    mixed = after_utf8 or not raw[:start].isascii()
    surrogate = _SURROGATE.match(sample)
    foreign = lost > valid and not mixed and not surrogate
    if repair and not (foreign and lost >= _SURE):
        return None
    bad = raw[start : min(error.end, start + 8)]
    got = f"{place}: expected UTF-8, got {_bytes(sample[:3] if surrogate else bad)} at byte {at}"
    drop = "or have such bytes dropped and counted: --on-error repair"
    if surrogate:
        return CorpusError(
            f"{got}, which is half a character. Programs that write CESU-8, such as older Java and Oracle, write "
            f"emoji so. Convert the file: uconv -f CESU-8 -t UTF-8 FILE > NEW, {drop}"
        )
    if not foreign:
        where = "before" if mixed else "after"
        return CorpusError(
            f"{got}. The text {where} it is UTF-8, so this place is damaged or in another encoding than the rest. "
            f"Correct it, {drop}"
        )
    guess = guess_encoding(raw[max(0, start - _SAMPLE) : start + _SAMPLE])
    if guess is None:
        return CorpusError(
            f"{got}. No encoding fits well enough to guess it. Name it, such as --encoding {EXAMPLES}, "
            "or convert the file with iconv"
        )
    line = raw[raw.rfind(b"\n", 0, start) + 1 :].split(b"\n", 1)[0]
    shown = line[max(0, line.find(bad) - _SHOWN // 2) :].decode(guess, "replace").strip()[:_SHOWN]
    return CorpusError(
        f"{got}. It looks like {guess}, in which the place reads {shown!r}. "
        f"Read it with --encoding {guess}, or convert it: {_iconv(guess)}"
    )


def guess_encoding(raw: bytes) -> str | None:
    """The encoding in which bytes that are not UTF-8 are most likely text, or None if none is likely.

    Small letters of one language's alphabet speak for an encoding. Capitals count half as much, because text in one
    Cyrillic encoding reads as capitals in another.

    >>> guess_encoding("książka, którą mam".encode("cp1250")), guess_encoding("вулиця Хрещатик".encode("koi8-u"))
    ('cp1250', 'koi8-u')
    """
    best, likely = 0.0, None
    for name, alphabets in _CANDIDATES.items():
        text = raw.decode(name, "replace")
        if alphabets == (_CYRILLIC,):
            text = _NEXT_TO_LATIN.sub("\ufffd", text)
        foreign = [char for char in text if not char.isascii() and char not in _NEUTRAL]
        if len(foreign) < _SURE:
            continue
        for alphabet in alphabets:
            worth = {**dict.fromkeys(alphabet.upper(), 0.5), **dict.fromkeys(alphabet, 1.0)}
            share = sum(worth.get(char, 0.0) for char in foreign) / len(foreign)
            if share > best:
                best, likely = share, name
    return likely if best >= 0.8 else None


def _bytes(raw: bytes) -> str:
    return f"the byte{'s' if len(raw) > 1 else ''} {raw.hex(' ')}"


def _iconv(encoding: str) -> str:
    return f"iconv -f {encoding.upper()} -t UTF-8 FILE > NEW"
