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
from numpy.typing import NDArray

from spectool.artifacts.tokenizer.tokenizer import Tokenizer

LOOK, SPLIT, JOIN = 0, 1, 2  # has to look further, always splits, never splits

# Coarse classes, each with characters that pre-tokenizers may still treat differently.
_REPRESENTATIVES = ("Ж", "ж", "srelS", "\u02bcא\u0301ǅ", "0²", " ", "\t\u00a0", "\n\r", "'", "./€")
# Longer strings, where splits depend on what is further away: alphabet, longest.
_LONGER = (("Жжs\u02bc\u0301 \t\n'./0", 5), ("ж\u0301 \n./", 6), ("ж0 ", 7))
_SPLIT_SEEN, _JOINED_SEEN, _DISTURBED = 1, 2, 4
_Bits = NDArray[np.uint16] | np.uint16  # bit i: a pre-token begins at character i
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
        self._spaces = tokenizer.space_sign
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
    key = json.dumps(tokenizer.spec["pre_tokenizer"]) + tokenizer.space_sign
    table = _TABLES.get(key)
    if table is None:
        table = _TABLES[key] = _probed(PreTokens(tokenizer))
        table.flags.writeable = False
    return table


def _probed(pre_tokens: PreTokens) -> NDArray[np.uint8]:
    alphabet = "".join(_REPRESENTATIVES)
    texts = map("".join, chain(alphabet, product(alphabet, repeat=2)))
    if all(_found(pre_tokens, text) == 1 for text in texts):
        # Splits nothing: there is none, or it looks for spaces that are written otherwise by then.
        return np.full((CLASSES, CLASSES, CLASSES), JOIN, np.uint8)
    seen = np.zeros((CLASSES, CLASSES, CLASSES), np.uint8)
    for letters, longest in ((alphabet, 4), *_LONGER):
        _see_strings(pre_tokens, letters, longest, seen)
    _see_numbers(pre_tokens, alphabet, seen)
    table = np.full(seen.shape, LOOK, np.uint8)
    table[seen == _SPLIT_SEEN] = SPLIT
    table[seen == _JOINED_SEEN] = JOIN
    return table


def _see_strings(pre_tokens: PreTokens, alphabet: str, longest: int, seen: NDArray[np.uint8]) -> None:
    """Note what is seen at each boundary of all strings over an alphabet."""
    size = len(alphabet)
    classes = [coarse(char) for char in alphabet]
    by_length: list[NDArray[np.uint16]] = [np.ones((), np.uint16)]  # one axis a character
    for length in range(1, longest + 1):
        texts = map("".join, product(alphabet, repeat=length))
        found = np.fromiter((_found(pre_tokens, text) for text in texts), np.uint16, size**length)
        by_length.append(found := found.reshape((size,) * length))
        for at in range(1, length):
            left = by_length[at].reshape((size,) * at + (1,) * (length - at))
            right = by_length[length - at].reshape((1,) * at + (size,) * (length - at))
            flags = _flags(found, at, left, right)
            near = range(max(0, at - 2), at + 1)
            folded = np.bitwise_or.reduce(flags, axis=tuple(axis for axis in range(length) if axis not in near))
            before = [START] if at == 1 else classes
            np.bitwise_or.at(seen, np.ix_(before, classes, classes), folded.reshape(-1, size, size))


def _see_numbers(pre_tokens: PreTokens, alphabet: str, seen: NDArray[np.uint8]) -> None:
    """Likewise for numbers of up to seven digits with a character before and after them, or none."""
    known: dict[str, np.uint16] = {}
    for before, length, after in product(["", *alphabet], range(1, 8), ["", *alphabet]):
        text = before + "0" * length + after
        for part in (text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1)):
            if part not in known:
                known[part] = np.uint16(_found(pre_tokens, part))
        classes = [START, *map(coarse, text)]
        for at in range(1, len(text)):
            flags = _flags(known[text], at, known[text[:at]], known[text[at:]])
            seen[classes[at - 1], classes[at], classes[at + 1]] |= flags


def _found(pre_tokens: PreTokens, text: str) -> int:
    """Return the places at which pre-tokens begin as bits."""
    return sum(1 << start for start in pre_tokens.ask(text))


def _flags(found: _Bits, at: int, left: _Bits, right: _Bits) -> NDArray[np.uint8]:
    """Compare the splits of whole strings with those of their two parts, cut before character ``at``."""
    split = found >> at & 1
    disturbed = (found & (1 << at) - 1 != left) | (found >> at | 1 != right | 1)
    flags: NDArray[np.uint8] = (np.where(split, _SPLIT_SEEN, _JOINED_SEEN) | _DISTURBED * disturbed).astype(np.uint8)
    return flags


def never_splits(table: NDArray[np.uint8]) -> bool:
    """Tell whether a boundary table says that texts are never split."""
    return bool((table[:, :START, :START] == JOIN).all())


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
