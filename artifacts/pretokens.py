"""Where a tokenizer's pre-tokenizer splits, asked of the pre-tokenizer itself but without the text.

A pre-tokenizer sees characters by class (letter, digit, space, apostrophe, ...). Every character
is replaced by a representative of its class, every token has its representatives ready, and the
splits of a sequence of representatives are remembered. For most pairs of neighbours not even
that is needed: `boundary_table` knows from trying all short strings whether the pre-tokenizer
always splits there, never does, or has to look further.
"""

import json
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, product

import numpy as np
import tokenizers
from numpy.typing import NDArray

from spectool.artifacts.surfaces import flatten
from spectool.artifacts.tokenizer import Tokenizer

LOOK, SPLIT, JOIN = 0, 1, 2  # has to look further, always splits, never splits

# Coarse classes, each with characters that pre-tokenizers may still treat differently.
_REPRESENTATIVES = ("Ж", "ж", "srelS", "\u02bcא\u0301ǅ", "0²", " ", "\t\u00a0", "\n\r", "'", "./€")
# Longer strings, where splits depend on what is further away: alphabet, shortest, longest.
_LONGER = (("Жжs\u02bc\u0301 \t\n'./0", 5, 5), ("ж\u0301 \n./", 6, 6), ("ж0 ", 5, 7))
START = len(_REPRESENTATIVES)  # class of "nothing before"
CLASSES = START + 1
_UPPER, _LOWER, _CONTRACTING, _OTHER_LETTER, _NUMBER, _SPACE, _BLANK, _NEWLINE, _APOSTROPHE, _SIGN = range(START)
_CONTRACTIONS = frozenset("stremvldSTREMVLDſ")
_BY_CATEGORY = {"Lu": "Ж", "Ll": "ж", "Lt": "ǅ", "Lm": "\u02bc", "Lo": "א", "M": "\u0301", "Nd": "٣", "Nl": "Ⅷ"}
_BY_CATEGORY |= {"No": "²", "P": "«", "S": "€", "Z": "\u00a0", "C": "\u00ad"}


@lru_cache(maxsize=65536)
def representative(char: str) -> str:
    """Return the character that stands for ``char`` in questions to a pre-tokenizer."""
    category = unicodedata.category(char)
    if char in _CONTRACTIONS:
        return char
    if char.isascii():
        return {"Lu": "Ж", "Ll": "ж", "Nd": "0"}.get(category, char)
    if is_space(char):
        return char
    return _BY_CATEGORY.get(category) or _BY_CATEGORY[category[0]]


@lru_cache(maxsize=1024)
def coarse(stand_in: str) -> int:
    """Return the coarse class (0 to `START` - 1) of a representative."""
    for place, examples in enumerate(_REPRESENTATIVES):
        if stand_in in examples:
            return place
    category = unicodedata.category(stand_in)
    if stand_in in _CONTRACTIONS:
        return _CONTRACTING
    if is_space(stand_in):
        return _BLANK
    if category[0] == "N":
        return _NUMBER
    return _OTHER_LETTER if category[0] in "LM" else _SIGN


def is_space(char: str) -> bool:
    """Tell whether a pre-tokenizer takes a character for white space; U+001C to U+001F only Python does."""
    return char.isspace() and not "\x1c" <= char <= "\x1f"


_TABLES: dict[str, NDArray[np.uint8]] = {}  # by pre-tokenizer; a table takes seconds, and 1 KB


class PreTokens:
    """The splits of one tokenizer's pre-tokenizer on representatives."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Take the pre-tokenizer out of ``tokenizer``."""
        self._pre_tokenizer = tokenizer.backend.pre_tokenizer
        self._spaces = writes_spaces_as(tokenizer)
        self._known: dict[str, tuple[int, ...]] = {}

    def starts(self, stand_ins: str) -> tuple[int, ...]:
        """Return where pre-tokens begin, in characters; the first is 0."""
        found = self._known.get(stand_ins)
        if found is None:
            found = self._known[stand_ins] = tuple(self.ask(stand_ins))
        return found

    def ask(self, text: str) -> Iterator[int]:
        """Yield where pre-tokens of a text begin, without remembering."""
        if self._pre_tokenizer is None:
            yield 0
            return
        if self._spaces != " ":
            text = text.replace(" ", self._spaces)
        for _, (start, _) in self._pre_tokenizer.pre_tokenize_str(text):
            yield start


def boundary_table(tokenizer: Tokenizer) -> NDArray[np.uint8]:
    """Try all short strings of representatives and sum up what the pre-tokenizer does.

    Strings of up to four characters; of up to seven from fewer classes (words, numbers, spaces),
    and of up to nine around a number, since groups of digits are counted from where it begins.

    Returns:
        uint8, shape ``[CLASSES, CLASSES, CLASSES]``, indexed by the classes of the last two
        characters before a boundary (`START` where there are fewer) and of the first one after
        it: `SPLIT`, `JOIN` or `LOOK`. Not `LOOK` also means that neither side's own splits
        depend on the other side. Read-only, and made once for all tokenizers with this pre-tokenizer.
    """
    key = json.dumps(tokenizer.spec["pre_tokenizer"]) + writes_spaces_as(tokenizer)
    table = _TABLES.get(key)
    if table is None:
        table = _TABLES[key] = _probed(PreTokens(tokenizer))
        table.flags.writeable = False
    return table


def _probed(pre_tokens: PreTokens) -> NDArray[np.uint8]:
    alphabet = "".join(_REPRESENTATIVES)
    if all(list(pre_tokens.ask(text)) == [0] for text in _strings(alphabet, 1, 2)):
        # Splits nothing: there is none, or it looks for spaces that are written otherwise by then.
        return np.full((CLASSES, CLASSES, CLASSES), JOIN, np.uint8)
    # 1: split seen, 2: joined seen, 4: sides disturbed
    seen = [[[0] * CLASSES for _ in range(CLASSES)] for _ in range(CLASSES)]
    starts: dict[str, int] = {}  # bit i: a pre-token begins at character i
    class_of = {char: coarse(char) for char in alphabet}
    for text in chain(_strings(alphabet, 1, 4), *(_strings(*longer) for longer in _LONGER), _numbers(alphabet)):
        found = starts[text] = sum(1 << start for start in pre_tokens.ask(text))
        classes = [START, *map(class_of.__getitem__, text)]
        for at in range(1, len(text)):
            left, right = found & (1 << at) - 1, found >> at
            disturbed = left != starts[text[:at]] or right | 1 != starts[text[at:]] | 1
            seen[classes[at - 1]][classes[at]][classes[at + 1]] |= (1 if right & 1 else 2) | 4 * disturbed
    summed = np.array(seen)
    table = np.full(summed.shape, LOOK, np.uint8)
    table[summed == 1] = SPLIT
    table[summed == 2] = JOIN
    return table


def _strings(alphabet: str, shortest: int, longest: int) -> Iterator[str]:
    for length in range(shortest, longest + 1):
        yield from map("".join, product(alphabet, repeat=length))


def _numbers(alphabet: str) -> Iterator[str]:
    """Yield numbers of up to seven digits with a character before and after them, and every end of these."""
    for length, after, before in product(range(1, 8), ["", *alphabet], ["", *alphabet]):
        yield before + "0" * length + after


def never_splits(table: NDArray[np.uint8]) -> bool:
    """Tell whether a boundary table says that texts are never split."""
    return bool((table[:, :START, :START] == JOIN).all())


def text_backend(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """Return a backend that spells exactly the text it is given, inside a running text.

    Special tokens are not looked for in the text, nothing is prepended and nothing normalized,
    but for the way that spaces are written.
    """
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    backend.encode_special_tokens = True
    spaces = writes_spaces_as(tokenizer)
    backend.normalizer = None if spaces == " " else tokenizers.normalizers.Replace(" ", spaces)
    return backend


def writes_spaces_as(tokenizer: Tokenizer) -> str:
    """Return the sign that stands for a space in this tokenizer's vocabulary: a space where there is none."""
    for step in flatten(tokenizer.spec["normalizer"], "normalizers"):
        if step["type"] == "Replace" and step["pattern"] == {"String": " "}:
            return str(step["content"])
    return " "


def stand_ins(text: str) -> str:
    """Replace every character of a text by its representative."""
    return "".join(map(representative, text))


@lru_cache(maxsize=65536)
def stand_in_for(character: bytes) -> str | None:
    """Return the representative of one character, given by its bytes; None if they are none."""
    try:
        return stand_ins(character.decode())
    except UnicodeDecodeError:
        return None
