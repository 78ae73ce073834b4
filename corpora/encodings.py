"""Text in other encodings than UTF-8: turned into UTF-8 as a stream, and guessed where a file says nothing.

A byte order mark decides by itself. Without one, text is UTF-8 unless the caller names an encoding.
"""

import codecs
import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from spectool import CorpusError
from spectool.corpora.documents import Reading

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

_POLISH, _CZECH, _HUNGARIAN = "ąćęłńóśźż", "áčďéěíňóřšťúůýžäĺľôŕ", "áéíóöőúüű"
_CYRILLIC = "абвгдежзийклмнопрстуфхцчшщьюяіїєґыэъёў"
_CANDIDATES = {
    "cp1250": (_POLISH, _CZECH, _HUNGARIAN),
    "iso-8859-2": (_POLISH, _CZECH, _HUNGARIAN),
    "cp1251": (_CYRILLIC,),
    "koi8-u": (_CYRILLIC,),
    "cp866": (_CYRILLIC,),
    "iso-8859-5": (_CYRILLIC,),
    "cp852": (_POLISH, _CZECH),
    "cp1254": ("âçğıîñöşü",),
    "cp1252": ("àâäæçèéêëîïñòóôöùûüßåøáíúãõ",),
}
_BESIDE_LATIN = re.compile(r"(?<=[A-Za-z])[^\0-\x7f]|[^\0-\x7f](?=[A-Za-z])")  # no letters of another script
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


def as_utf8(path: str, chunks: Iterable[bytes], reading: Reading) -> Iterator[bytes]:
    """Yield the bytes of a file as UTF-8: from `Reading.encoding`, or from UTF-16 or UTF-32 by its byte order mark.

    Raises:
        CorpusError: The file contradicts the encoding, by its byte order mark or because it is UTF-8. Or it has
            bytes that the encoding does not define; under `Reading.repair` these are dropped and counted.
    """
    stream = iter(chunks)
    head = b""
    for chunk in stream:
        head += chunk
        if len(head) >= len(codecs.BOM_UTF32_LE):
            break
    encoding = _encoding_of(path, head, reading.encoding)
    if encoding is None:
        yield head
        yield from stream
        return
    decoder = codecs.getincrementaldecoder(encoding)("spectool-drop" if reading.repair else "strict")
    compared = encoding.startswith("utf-")
    line, offset = 1, 0
    for chunk in _and_end(head, stream):
        if not compared and not chunk.isascii():
            compared = True
            if _is_utf8(chunk):
                raise CorpusError(f"{path}: expected {encoding}, got UTF-8. Leave out --encoding {reading.encoding}")
        before = decoder.getstate()[0]
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            raw = error.object[error.start : error.end]
            line += error.object[: error.start].decode(encoding, "ignore").count("\n")
            raise CorpusError(
                f"{path}:{line}: expected {encoding}, got {_bytes(raw)} at byte {offset - len(before) + error.start}, "
                f"which {encoding} does not define. Name another encoding with --encoding, such as {EXAMPLES}"
            ) from error
        if reading.repair:
            reading.repaired("invalid_bytes", text.count(_DROPPED))
            text = text.replace(_DROPPED, "")
        line += text.count("\n")
        offset += len(chunk)
        yield text.encode()


def _and_end(head: bytes, stream: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces that are not empty, and an empty one for the end."""
    if head:
        yield head
    yield from filter(None, stream)
    yield b""


def _encoding_of(path: str, head: bytes, asked: str | None) -> str | None:
    """Return what a file that begins with ``head`` is to be decoded from, None for UTF-8."""
    marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)
    if asked is None:
        if marked is None and (wide := _wide(head)):
            raise CorpusError(
                f"{path}: expected UTF-8, got text that looks like {wide} without a byte order mark. "
                f"Read it with --encoding {wide}, or convert it: {_iconv(wide)}"
            )
        return None if marked == "utf-8" else marked
    if marked is None and asked in ("utf-16", "utf-32"):
        wide = _wide(head)
        looks = f"looks like {wide}" if wide else f"does not look like {asked}"
        step = f"Read it with --encoding {wide or 'NAME'}" + ("" if wide else f", such as {EXAMPLES}")
        raise CorpusError(
            f"{path}: expected {asked} with a byte order mark, got a file without one that {looks}. {step}"
        )
    if marked is not None and not asked.startswith(marked):
        raise CorpusError(
            f"{path}: expected {asked}, got a file with the byte order mark of {marked}. Leave out --encoding {asked}"
        )
    return asked


def _wide(head: bytes) -> str | None:
    """Return which UTF-16 a text without a mark looks like: its spaces and line ends have a zero byte on one side."""
    sample = head[:_SAMPLE]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    few, many = sorted((even, odd))
    if many < 2 or many < len(sample) // 100 or few > many // 10:
        return None
    return "utf-16-le" if odd > even else "utf-16-be"


def _is_utf8(chunk: bytes) -> bool:
    """Say whether a piece of a file is beyond doubt UTF-8; its ends may cut a character."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(chunk.lstrip(bytes(range(0x80, 0xC0))))
    except UnicodeDecodeError:
        return False
    return sum(not char.isascii() for char in text[:_SAMPLE]) >= _SURE


def undecodable(
    place: str, raw: bytes, error: UnicodeDecodeError, offset: int, after_utf8: bool, repair: bool
) -> CorpusError | None:
    """The error for bytes that are not UTF-8, or None where they are damage that ``repair`` allows to drop.

    Text in another encoding is an error even then: without its letters it would be another text.

    Args:
        place: File and line of the first of them.
        raw: What was to be decoded.
        error: Where it failed.
        offset: Where ``raw`` starts in the file, in bytes.
        after_utf8: Whether the file had letters in UTF-8 before ``raw``.
        repair: Whether damage may be repaired.
    """
    sample = raw[error.start : error.start + _SAMPLE]
    letters = sample.decode(errors="ignore")
    lost, valid = len(sample) - len(letters.encode()), sum(not char.isascii() for char in letters)
    mixed = after_utf8 or not raw[: error.start].isascii()
    foreign = lost > valid and not mixed
    if repair and not (foreign and lost >= _SURE):
        return None
    bad = raw[error.start : min(error.end, error.start + 8)]
    got = f"{place}: expected UTF-8, got {_bytes(bad)} at byte {offset + error.start}"
    if not foreign:
        where = "before" if mixed else "after"
        return CorpusError(
            f"{got}. The text {where} it is UTF-8, so this place is damaged or in another encoding than the rest. "
            "Correct it, or have such bytes dropped and counted: --on-error repair"
        )
    guess = guess_encoding(raw[max(0, error.start - _SAMPLE) : error.start + _SAMPLE])
    if guess is None:
        return CorpusError(
            f"{got}. No encoding fits well enough to guess it. Name it, such as --encoding {EXAMPLES}, "
            "or convert the file with iconv"
        )
    line = raw[raw.rfind(b"\n", 0, error.start) + 1 :].split(b"\n", 1)[0]
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
            text = _BESIDE_LATIN.sub("\ufffd", text)
        found = Counter(char for char in text if not char.isascii() and char not in _NEUTRAL)
        if found.total() < _SURE:
            continue
        for alphabet in alphabets:
            small, large = (sum(found[letter] for letter in letters) for letters in (alphabet, alphabet.upper()))
            share = (small + 0.5 * large) / found.total()
            if share > best:
                best, likely = share, name
    return likely if best >= 0.8 else None


def _bytes(raw: bytes) -> str:
    return f"the byte{'s' if len(raw) > 1 else ''} {raw.hex(' ')}"


def _iconv(encoding: str) -> str:
    return f"iconv -f {encoding.upper()} -t UTF-8 FILE > NEW"
