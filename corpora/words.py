r"""Words of a text, and the runs of words between which an n-gram may reach.

A word is letters, combining marks and digits, with apostrophes (' ’ ʼ) and hyphens
(- ‐ ‑) inside: комп'ютер, за́мок, будь-який, 3-го. In languages with elision the apostrophe
ends the word before it: l' + uomo.

Shape of the pattern, where A is an atom::

    A    = letter+ (mark+ letter*)*        letter: \w without _ and ʼ
    word = A (joint A)*                    joint: one apostrophe or hyphen

Most pieces between spaces are one word and at most one closing mark. String methods recognise these faster than the
pattern, which decides about the others.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import chain, groupby

ELISION_LANGUAGES = frozenset({"ca", "fr", "it"})
"""ISO 639 codes of the languages where an apostrophe ends a word."""

_APOSTROPHES = "'\u2019\u02bc"
_HYPHENS = "\\-\u2010\u2011"
# A letter by its category, and here a joint by its use.
_LETTER_JOINT = "\u02bc"
_LETTER = f"[^\\W_{_LETTER_JOINT}]"
_CLOSING = frozenset(".,;:!?)»”…")


def words(text: str, language: str | None = None) -> list[str]:
    """The words of ``text`` in their order, each a piece of it.

    >>> words("«П’ять» слів, 'слово'!")
    ['П’ять', 'слів', 'слово']
    >>> words("l'uomo", language="it")
    ["l'", 'uomo']

    Args:
        text: In NFC; other forms work, but the words are other strings then.
        language: ISO 639 code, perhaps with a region; changes elision languages only.
    """
    return list(chain.from_iterable(word_runs(text, language)))


def word_runs(text: str, language: str | None = None) -> Iterator[list[str]]:
    """Yield the longest runs of words with exactly one plain space between each two.

    The runs hold the words of `words`, all of them and in their order. Joined by a space, a run
    is a piece of ``text``: no n-gram inside it crosses punctuation, a line end or an elision.

    >>> list(word_runs("Ой, у лузі червона калина"))
    [['Ой'], ['у', 'лузі', 'червона', 'калина']]
    """
    word = _word(_elides(language))
    by_pattern = _LETTER_JOINT in text
    run: list[str] = []
    for piece in text.split(" "):
        if not by_pattern:
            if piece.isalnum():
                run.append(piece)
                continue
            if piece[-1:] in _CLOSING and piece[:-1].isalnum():
                yield [*run, piece[:-1]]
                run = []
                continue
        end = 0
        for match in word.finditer(piece):
            if run and (end or match.start()):
                yield run
                run = []
            run.append(match.group())
            end = match.end()
        if run and (end < len(piece) or not piece):
            yield run
            run = []
    if run:
        yield run


def _elides(language: str | None) -> bool:
    return language is not None and re.split("[-_]", language.lower())[0] in ELISION_LANGUAGES


@cache
def _word(elides: bool) -> re.Pattern[str]:
    """The pattern of one word."""
    atom = f"{_LETTER}+(?:[{combining_marks()}]+{_LETTER}*)*"
    if elides:
        return re.compile(f"{atom}(?:[{_HYPHENS}]{atom})*(?:[{_APOSTROPHES}](?={_LETTER}))?")
    return re.compile(f"{atom}(?:[{_APOSTROPHES}{_HYPHENS}]{atom})*")


@cache
def combining_marks() -> str:
    """All combining marks as the inside of a character class, in ranges."""
    # Planes 2 to 13 hold ideographs or nothing; leaving them out makes the first call ten times as fast.
    codes = chain(range(0x20000), range(0xE0000, 0xE1000))
    marks = (code for code in codes if unicodedata.category(chr(code))[0] == "M")
    ranges = [[code for _, code in group] for _, group in groupby(enumerate(marks), lambda pair: pair[1] - pair[0])]
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in ranges)
