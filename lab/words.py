r"""The runs of words of a text, beyond which no n-gram reaches.

A word is letters, combining marks and digits, with apostrophes (' ’ ʼ) and hyphens
(- ‐ ‑) inside: комп'ютер, за́мок, будь-який, 3-го.

Shape of the pattern, where A is an atom::

    A    = letter+ (mark+ letter*)*        letter: \w without _ and ʼ
    word = A (joint A)*                    joint: one apostrophe or hyphen
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import chain, groupby

_JOINTS = "'\u2019\u02bc\\-\u2010\u2011"
# A letter by its category, and here a joint by its use.
_LETTER_JOINT = "\u02bc"
_LETTER = f"[^\\W_{_LETTER_JOINT}]"


def word_runs(text: str) -> Iterator[list[str]]:
    """Yield the longest runs of words with exactly one plain space between each two, which hold all words in order.

    Joined by a space, a run is a piece of ``text``, so no n-gram inside it crosses punctuation or a line end. Text that
    is not in NFC gives other words.

    >>> list(word_runs("Ой, у лузі червона калина"))
    [['Ой'], ['у', 'лузі', 'червона', 'калина']]
    """
    word = _word()
    run: list[str] = []
    for piece in text.split(" "):
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


@cache
def _word() -> re.Pattern[str]:
    """The pattern of one word."""
    atom = f"{_LETTER}+(?:[{combining_marks()}]+{_LETTER}*)*"
    return re.compile(f"{atom}(?:[{_JOINTS}]{atom})*")


def combining_marks() -> str:
    """All combining marks as the inside of a character class, in ranges."""
    # Planes 2 to 13 hold ideographs or nothing; leaving them out makes this ten times as fast.
    codes = chain(range(0x20000), range(0xE0000, 0xE1000))
    marks = (code for code in codes if unicodedata.category(chr(code))[0] == "M")
    ranges = [[code for _, code in group] for _, group in groupby(enumerate(marks), lambda pair: pair[1] - pair[0])]
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in ranges)
