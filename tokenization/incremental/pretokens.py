"""Where a tokenizer's pre-tokenizer splits, asked of the pre-tokenizer itself but without the text.

A pre-tokenizer sees characters by class (`alphabet`). Every character is replaced by the representative of its class,
and the splits of a sequence of representatives are remembered. For most pairs of neighbours not even that is needed.
`boundary_table` knows from trying short strings whether the pre-tokenizer always splits there, never does, or has to
look further.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool.tokenization.incremental.alphabet import Alphabet, Parts, alphabet_of, parts_of
from spectool.tokenization.tokenizer import Tokenizer

LOOK, SPLIT, JOIN = 0, 1, 2  # has to look further, always splits, never splits

_SPLIT_SEEN, _JOINED_SEEN, _DISTURBED = 1, 2, 4
_OPEN = (0, _SPLIT_SEEN, _JOINED_SEEN)  # all that is not `LOOK` yet, whatever is seen later
_LONGEST = 16  # characters of a string that is tried, one bit each
LONGEST_WORD, MOST_REPEATS = _LONGEST - 2, _LONGEST // 2 - 2  # what of a pattern is tried whole, and twice in a row
_TRIED = 400_000  # strings of one length, at most; all strings of that length or none
_DRAWN = 20_000  # longer strings, drawn at random
_REMEMBERED = 1 << 16  # texts of classes


@dataclass(frozen=True)
class BoundaryTable:
    """What a pre-tokenizer does between characters of its classes."""

    alphabet: Alphabet  # the classes, numbered from 0
    # `SPLIT`, `JOIN` or `LOOK`, uint8 ``[size + 1, size, size]``. It goes by the classes of the last two characters
    # before a boundary and of the first one after it. Where only one is before, the first class is `alphabet.size`.
    # Not `LOOK` also means that neither side's own splits depend on the other side.
    verdicts: NDArray[np.uint8]

    @property
    def splits(self) -> bool:
        """Whether texts are ever split."""
        return bool((self.verdicts != JOIN).any())


_TABLES: dict[Alphabet, BoundaryTable] = {}  # one for each pre-tokenizer, as alphabets are; it takes seconds


class PreTokens:
    """The splits of one tokenizer's pre-tokenizer on representatives.

    Attributes:
        starts: Classes of the characters of a text -> where its pre-tokens begin; the first is 0. The latest
            answers are remembered.
    """

    def __init__(self, tokenizer: Tokenizer, alphabet: Alphabet) -> None:
        """Take the pre-tokenizer out of ``tokenizer``, whose classes of characters are ``alphabet``."""
        self._pre_tokenizer = tokenizer.text_splits
        self._spaces = tokenizer.normalized_space
        self._representatives = alphabet.representatives
        self.starts = lru_cache(_REMEMBERED)(self.represented)

    def represented(self, classes: Iterable[int]) -> tuple[int, ...]:
        """As `starts`, without remembering."""
        return tuple(self.ask("".join(map(self._representatives.__getitem__, classes))))

    def ask(self, text: str) -> list[int]:
        """Return where pre-tokens of a text begin."""
        if self._pre_tokenizer is None:
            return [0]
        return [start for _, (start, _) in self._pre_tokenizer.pre_tokenize_str(text.replace(" ", self._spaces))]


def boundary_table(tokenizer: Tokenizer) -> BoundaryTable:
    """Try short strings of all classes and sum up what the pre-tokenizer does.

    All strings are tried as far as there are not too many, and longer ones of classes that short strings do not tell
    apart. So are the words of its patterns and runs of one class, with everything before and after them. So are longer
    strings of what two parts of a pattern share, such as letters. Long ones are drawn at random, the same in every run.

    Raises:
        TokenizerError: Its pre-tokenizer has steps or patterns without classes of characters.
    """
    alphabet = alphabet_of(tokenizer)
    if alphabet not in _TABLES:
        verdicts = _Trial(PreTokens(tokenizer, alphabet), alphabet).verdicts(parts_of(tokenizer.steps("pre_tokenizer")))
        verdicts.flags.writeable = False
        _TABLES[alphabet] = BoundaryTable(alphabet, verdicts)
    return _TABLES[alphabet]


class _Trial:
    """Strings of classes tried on a pre-tokenizer, and what was seen at their boundaries."""

    def __init__(self, pre_tokens: PreTokens, alphabet: Alphabet) -> None:
        self._pre_tokens, self._alphabet, self._size = pre_tokens, alphabet, alphabet.size
        self._seen = np.zeros((self._size + 1, self._size, self._size), np.uint8)
        self._remembered = cache(self._split)

    def _split(self, classes: Iterable[int]) -> int:
        """Return where pre-tokens begin, as bits."""
        return sum(1 << start for start in self._pre_tokens.represented(classes))

    def verdicts(self, parts: Parts) -> NDArray[np.uint8]:
        """Try strings of all kinds and judge."""
        short = self._try_all(range(self._size), 3 if self._size**3 <= _TRIED else 2)
        alike = _alike(short)
        few = sorted(set(alike))
        self._try_all(few, _longest(len(few), _TRIED))
        same = _same_but_for_literals(parts.matchers, self._alphabet)
        self._try_neighbours(parts, same)
        around = [b"", *(bytes([number]) for number in few)]
        words = [word for word in spelled(parts.words, self._alphabet) if len(word) <= LONGEST_WORD]
        for before, word, after in product(around, words, [b"", *(bytes([n]) for n in range(self._size))]):
            self._try(before + word + after)
        lengths = range(2, min(2 * parts.repeats + 2, LONGEST_WORD))
        for before, number, length, after in product(around, few, lengths, around):
            self._try(before + bytes([number]) * length + after)
        rng = random.Random(0)
        units = [*words, *(bytes([number]) * count for number in few for count in (1, 1, 2, 3))]
        for _ in range(_DRAWN * (len(few) > 1)):
            self._try(b"".join(rng.choices(units, k=rng.randint(4, 8)))[:_LONGEST])
        # Classes that are alike have seen what one of them has, also beside classes that are themselves.
        seen = self._seen
        for axis, places in enumerate(([*alike, self._size], alike, alike)):
            seen = seen | np.take(seen, places, axis)
        # Where one class has to look further, those that differ from it in literals only have to.
        for axis, places in enumerate(([*same, self._size], same, same)):
            seen[~np.isin(np.take(seen, places, axis), _OPEN)] |= _DISTURBED
        verdicts = np.full(seen.shape, LOOK, np.uint8)
        verdicts[seen == _SPLIT_SEEN] = SPLIT
        verdicts[seen == _JOINED_SEEN] = JOIN
        return verdicts

    def _try_neighbours(self, parts: Parts, same: Sequence[int]) -> None:
        """Try strings of what neighbouring parts of a pattern share: alone, behind any class or such as ``'re``."""
        literal = list(spelled(frozenset(filter(is_literal, parts.words)), self._alphabet))
        begun = [b"", *(bytes([number]) for number in sorted(set(same)))]
        for classes in neighbouring(parts.words, self._alphabet):
            letters = sorted({same[number] for number in classes})
            self._try_all(letters, _longest(len(letters), _TRIED // 8))
            for heads in (begun, list(map(b"".join, product(begun, literal)))):
                length = min(5, _longest(len(letters), _TRIED // 8 // max(1, len(heads))))
                for head, end in product(heads, product(letters, repeat=length)):
                    self._try(head[: _LONGEST - length] + bytes(end))

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
                flags = _flags(found, at, left, right)
                near = range(max(0, at - 2), at + 1)
                folded = np.bitwise_or.reduce(flags, axis=tuple(axis for axis in range(length) if axis not in near))
                before = [self._size] if at == 1 else classes
                self._seen[np.ix_(before, classes, classes)] |= folded.reshape(-1, size, size).astype(np.uint8)
        return by_length

    def _try(self, classes: bytes) -> None:
        """Note what is seen at each boundary of one string; of those that are `LOOK` already, nothing more."""
        seen = self._seen.data  # single numbers are read faster than from the array
        before = self._size
        for at in range(1, len(classes)):
            place = before, classes[at - 1], classes[at]
            if seen[place] in _OPEN:
                parts = self._remembered(classes[:at]), self._remembered(classes[at:])
                seen[place] |= _flags(self._remembered(classes), at, *parts)
            before = classes[at - 1]


def _alike(short: list[NDArray[np.uint16]]) -> list[int]:
    """Return for each class the first one that takes its place in all strings tried without a difference."""
    size = len(short[1])
    alike: dict[bytes, int] = {}
    return [
        alike.setdefault(
            b"".join(np.take(found, number, axis).tobytes() for found in short[1:] for axis in range(found.ndim)),
            number,
        )
        for number in range(size)
    ]


def _same_but_for_literals(matchers: frozenset[str], alphabet: Alphabet) -> list[int]:
    """Return for each class the first one that only literals tell from it, itself matched by none if there is one."""
    known = [set(alphabet.matching(part)) for part in matchers if not is_literal((part,))]
    literals = {number for part in matchers if is_literal((part,)) for number in alphabet.matching(f"(?i:{part})")}
    kinds = [tuple(number in matched for matched in known) for number in range(alphabet.size)]
    first: dict[tuple[bool, ...], int] = {}
    for number in sorted(range(alphabet.size), key=literals.__contains__):
        first.setdefault(kinds[number], number)
    return [first[kind] for kind in kinds]


def _longest(size: int, most: int) -> int:
    """Return the length of strings over so many classes, at most 7, of which there are no more than ``most``."""
    return max((length for length in range(1, 8) if size**length <= most), default=0)


def is_literal(word: tuple[str, ...]) -> bool:
    """Return whether the parts of a pattern's word are all literals."""
    return all(part.startswith(r"\x{") for part in word)


def neighbouring(words: frozenset[tuple[str, ...]], alphabet: Alphabet) -> set[frozenset[int]]:
    """Return the classes that two neighbouring parts of a word match: which part takes a character is seen far on."""
    pairs = {pair for word in words for pair in pairwise(word)}
    return {frozenset(alphabet.matching(one) + alphabet.matching(other)) for one, other in pairs} - {frozenset()}


def spelled(words: frozenset[tuple[str, ...]], alphabet: Alphabet) -> Iterator[bytes]:
    """Yield the words of patterns as classes: literals in all cases, other parts once and as runs of each class."""
    for word in sorted(words):
        if is_literal(word):
            same = [alphabet.matching(f"(?i:{part})") for part in word]
            found: Iterator[bytes] = map(bytes, product(*(numbers[: None if len(word) < 5 else 1] for numbers in same)))
        else:
            same = [alphabet.matching(part) for part in word]
            turns = range(max(map(len, same)) if all(same) else 0)
            found = (
                b"".join(bytes([numbers[turn % len(numbers)]]) * (count if len(numbers) > 1 else 1) for numbers in same)
                for turn in turns
                for count in (1, 3)
            )
        yield from found


def _flags(found: Any, at: int, left: Any, right: Any) -> Any:
    """Compare the splits of whole strings with those of their two parts, cut before character ``at``.

    Splits are bits: a pre-token begins at character i. Those of one string are a number, those of many an array.
    """
    disturbed = (found & (1 << at) - 1 != left) | (found >> at | 1 != right | 1)
    return _JOINED_SEEN - (found >> at & 1) | _DISTURBED * disturbed
