"""Where a pre-tokenizer splits, by the classes of the characters around a place.

The table comes from asking the pre-tokenizer about short strings of one character of each class. For most pairs of
neighbours it says that the pre-tokenizer always splits there, or never does. For the others it has to be asked.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool import TokenizerError
from spectool.tokenization.incremental.patterns import UNKNOWN, CharacterClasses, shared, words
from spectool.tokenization.token_bytes import text_of
from spectool.tokenization.tokenizer import Tokenizer

LOOK, SPLIT, JOIN = 0, 1, 2  # has to be asked, always splits, never splits
MOST_CLASSES = 100

_SPLIT_SEEN, _JOINED_SEEN, _DISTURBED = 1, 2, 4
_LONGEST = 16  # characters of a string that is tried, one bit each
_TRIED = 800_000  # strings of one length, at most, such as those of five characters of fifteen classes
_DRAWN = 20_000  # longer strings, drawn at random
_REMEMBERED = 1 << 16  # texts of classes
_CHARACTER = 4  # bytes of the longest character
_SEEN = 8  # tokens that may hold the last two characters of a text


@dataclass(frozen=True, eq=False)
class BoundaryTable:
    """Where a pre-tokenizer splits between characters of its classes."""

    characters: str  # one character of each class, by number
    # `SPLIT`, `JOIN` or `LOOK`, uint8 ``[n + 1, n, n]``, by the classes of the last two characters before a place and
    # of the first one after it. Where only one is before, the first class is n. A verdict other than `LOOK` also means
    # that neither side's own splits depend on the other side.
    verdicts: NDArray[np.uint8]


def boundary_table(tokenizer: Tokenizer) -> BoundaryTable:
    """The boundary table of a tokenizer, found by trying strings on its pre-tokenizer.

    All strings of three characters are tried, and longer ones of classes that these do not tell apart. So are the words
    of the patterns, in any case, with anything before and after them, and long strings of runs and words drawn at
    random, which are the same in every run. Where two parts of a pattern share characters, no string is long enough:
    there the pre-tokenizer has to be asked.

    Raises:
        TokenizerError: The pre-tokenizer names too many characters.
    """
    classes, steps = CharacterClasses(tokenizer), tokenizer.steps("pre_tokenizer")
    if (found := len(classes.characters)) > MOST_CLASSES:
        raise TokenizerError(
            f"{tokenizer.name}: its pre-tokenizer tells {found} classes of characters apart, expected at most "
            f"{MOST_CLASSES}, so that drafts cannot be translated. Use another tokenizer"
        )
    ask = _asked(tokenizer, classes.characters)
    cased = (product(*({char, char.upper()} for char in word)) for word in words(steps))
    spelled = sorted({classes.of("".join(word)) for variants in cased for word in variants})
    verdicts = _Trial(ask, len(classes.characters)).verdicts(spelled)
    for either, both in shared(steps, classes.characters):
        verdicts[np.ix_(range(len(verdicts)), either, both)] = LOOK
        verdicts[np.ix_(range(len(verdicts)), both, either)] = LOOK
        # Which part took the character before the last two decides how far the part goes.
        verdicts[both] = np.where(verdicts[both] == JOIN, LOOK, verdicts[both])
    return BoundaryTable(classes.characters, verdicts)


def _asked(tokenizer: Tokenizer, characters: str) -> Callable[[Iterable[int]], tuple[int, ...]]:
    """A function from the classes of a text's characters to where its pre-tokens begin."""
    splits, signs = tokenizer.text_splits, characters.replace(" ", tokenizer.normalized_space)

    def ask(classes: Iterable[int]) -> tuple[int, ...]:
        if splits is None:
            return (0,)
        return tuple(start for _, (start, _) in splits.pre_tokenize_str("".join(map(signs.__getitem__, classes))))

    return ask


class _Trial:
    """Strings of classes tried on a pre-tokenizer, and what was seen at their boundaries."""

    def __init__(self, ask: Callable[[Iterable[int]], tuple[int, ...]], size: int) -> None:
        self._ask, self._size = ask, size
        self._seen = np.zeros((size + 1, size, size), np.uint8)
        self._remembered = cache(self._split)

    def _split(self, classes: Iterable[int]) -> int:
        """Where pre-tokens begin, as bits."""
        return sum(1 << start for start in self._ask(classes))

    def verdicts(self, words: Sequence[bytes]) -> NDArray[np.uint8]:
        """Try strings of all kinds and judge."""
        alike = _alike(self._try_all(range(self._size), 3 if self._size**3 <= _TRIED else 2))
        few = sorted(set(alike))
        self._try_all(few, max(length for length in range(1, 8) if len(few) ** length <= _TRIED))
        every = [bytes([number]) for number in range(self._size)]
        for before, word, after in product([b"", *every], words, [b"", *every]):
            for run in (1, 2):
                self._try(before * run + word + after)
        rng = random.Random(0)
        units = [*words, *(bytes([number]) * count for number in few for count in (1, 1, 2, 3)), *every]
        for _ in range(_DRAWN * (self._size > 1)):
            self._try(b"".join(rng.choices(units, k=rng.randint(4, 8)))[:_LONGEST])
        # What one class has seen holds for those that are like it, also next to classes that are themselves.
        seen = self._seen
        for axis, places in enumerate(([*alike, self._size], alike, alike)):
            seen = seen | np.take(seen, places, axis)
        return np.where(seen == _SPLIT_SEEN, SPLIT, np.where(seen == _JOINED_SEEN, JOIN, LOOK)).astype(np.uint8)

    def _try_all(self, classes: Sequence[int], longest: int) -> list[NDArray[np.uint16]]:
        """Try all strings of some classes; return where each is split, by length, one axis a character."""
        size = len(classes)
        by_length: list[NDArray[np.uint16]] = [np.ones((), np.uint16)]
        for length in range(1, longest + 1):
            found = np.fromiter(map(self._split, product(classes, repeat=length)), np.uint16, size**length)
            by_length.append(found := found.reshape((size,) * length))
            for at in range(1, length):
                left = by_length[at].reshape((size,) * at + (1,) * (length - at))
                right = by_length[length - at].reshape((1,) * at + (size,) * (length - at))
                far = tuple(axis for axis in range(length) if not at - 2 <= axis <= at)
                folded = np.bitwise_or.reduce(_flags(found, at, left, right), axis=far)
                before = [self._size] if at == 1 else classes
                self._seen[np.ix_(before, classes, classes)] |= folded.reshape(-1, size, size).astype(np.uint8)
        return by_length

    def _try(self, classes: bytes) -> None:
        """Record what is seen at each boundary of one string; nothing more where the verdict is `LOOK` already."""
        before = self._size
        for at in range(1, len(classes)):
            place = before, classes[at - 1], classes[at]
            if self._seen[place] in (0, _SPLIT_SEEN, _JOINED_SEEN):
                parts = self._remembered(classes[:at]), self._remembered(classes[at:])
                self._seen[place] |= _flags(self._remembered(classes), at, *parts)
            before = classes[at - 1]


def _alike(short: list[NDArray[np.uint16]]) -> list[int]:
    """For each class the first one that takes its place in all strings tried without a difference."""
    alike: dict[bytes, int] = {}
    axes = [(found, axis) for found in short[1:] for axis in range(found.ndim)]
    return [
        alike.setdefault(b"".join(np.take(found, number, axis).tobytes() for found, axis in axes), number)
        for number in range(len(short[1]))
    ]


def _flags(found: Any, at: int, left: Any, right: Any) -> Any:
    """Compare the splits of whole strings with those of their two parts, cut before character ``at``.

    Splits are bits: a pre-token begins at character i. Those of one string are a number, those of many an array.
    """
    disturbed = (found & (1 << at) - 1 != left) | (found >> at | 1 != right | 1)
    return _JOINED_SEEN - (found >> at & 1) | _DISTURBED * disturbed


class Boundaries:
    """Boundaries between the ids of one tokenizer.

    Attributes:
        splits: Whether its pre-tokenizer splits texts at all.
        starts: Classes of the characters of a text -> where its pre-tokens begin; the first is 0.
        classes: Text -> class of each character.
        shape: Token -> classes of its characters; none for parts of a character.
    """

    def __init__(self, tokenizer: Tokenizer, token_bytes: Sequence[bytes], table: BoundaryTable) -> None:
        """Prepare for a tokenizer with these token bytes and this table."""
        verdicts = table.verdicts
        self.splits = bool((verdicts != JOIN).any())
        self.starts = lru_cache(_REMEMBERED)(_asked(tokenizer, table.characters))
        self.classes = CharacterClasses(tokenizer, table.characters).of
        self.shape = cache(lambda token: self.classes(text_of(token_bytes[token])))
        self._token_bytes, self._size = token_bytes, len(table.characters)
        self._table: list[list[list[int]]] = verdicts.tolist()
        self._sure: list[list[bool]] = (verdicts == SPLIT).all(axis=0).tolist()
        # Last and first characters for which it does not matter what stood before them.
        self._settled: list[list[bool]] = (verdicts == verdicts[-1]).all(axis=0).tolist()

    def kind(self, ids: Sequence[int], at: int, run: Sequence[int], begin: int) -> tuple[int, int]:
        """What the pre-tokenizer does between ``ids[begin:at]`` and ``run``, and the first of these ids that counts.

        The latter is ``begin - 1`` where it counts that nothing stands before.
        """
        if not self.splits or self._token_bytes[run[0]][0] & 0xC0 == 0x80:  # inside a character nothing is split
            return JOIN, at - 1
        after, before, first = self.shape(run[0])[:1] or self._head(run), self.shape(ids[at - 1]), at - 1
        while len(before) < 2 and not (before and after and self._is_settled(before[0], after[0])):
            first -= 1
            if first < begin or first < at - _SEEN:
                break
            before = self.classes(text_of(self._data(ids[first:at]).lstrip(bytes(range(0x80, 0xC0)))))
        if not before or not after or UNKNOWN in (*before[-2:], after[0]) or begin <= first < at - _SEEN:
            return LOOK, first
        return self._table[before[-2] if len(before) > 1 else self._size][before[-1]][after[0]], first

    def surely_split(self, before: int, after: int) -> bool:
        """Whether text is split between two ids regardless of what stands around them."""
        left, right = self.shape(before)[-1:], self.shape(after)[:1]
        return bool(left and right) and UNKNOWN not in left + right and self._sure[left[0]][right[0]]

    def _is_settled(self, before: int, after: int) -> bool:
        return UNKNOWN not in (before, after) and self._settled[before][after]

    def _head(self, run: Sequence[int]) -> bytes:
        """The class of the first character of ids, which is spread over several."""
        data = self._data(run[:_CHARACTER])
        texts = (text_of(data[:length]) for length in range(1, _CHARACTER + 1))
        return self.classes(next(filter(None, texts), ""))

    def _data(self, tokens: Iterable[int]) -> bytes:
        return b"".join(map(self._token_bytes.__getitem__, tokens))
