"""The characters that a pre-tokenizer tells apart, found in its own patterns.

A pattern sees a character only through its parts: literals, classes such as ``[A-Za-z]`` or ``\\p{L}``,
white space. Characters that all parts of all steps treat alike are one class. Which characters a part
matches is asked of the step itself, for the whole of Unicode.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex
from tokenizers.pre_tokenizers import Digits, Metaspace, Punctuation, Sequence, Split

from spectool import TokenizerError
from spectool.tokenization.tokenizer import Tokenizer

# GPT-2's pattern, which `ByteLevel` has built in.
_BYTE_LEVEL = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_TOKEN = re.compile(
    r"""
    \\(?:[pP]\{[^}]*\} | x\{[^}]*\} | x[0-9A-Fa-f]{1,2} | u[0-9A-Fa-f]{4} | c. | .)  # an escape
    | \((?:\?(?:\#[^)]*\) | (?P<flags>[a-zA-Z-]+)[:)] | [:=!>] | <[=!] | <[A-Za-z_]\w*>))?  # a group begins
    | \{(?P<least>\d*)(?:,(?P<most>\d*))?\}  # how often
    | .
    """,
    re.DOTALL | re.VERBOSE,
)
_SURROGATES = range(0xD800, 0xE000)
_CODES = 0x110000
_CHUNK = 0x8000  # code points asked about at once; a step's time grows faster than a text
MOST_CLASSES = 100
_MOST_WORDS = 500  # of a pattern


class Parts(NamedTuple):
    """What a pre-tokenizer's patterns are made of."""

    matchers: frozenset[str]  # patterns of one character each
    # What matches one after the other, literals in a row and whole branches with those of their groups, as matchers.
    # A branch such as ``<[a-z]+>`` may match only where all of it stands.
    words: frozenset[tuple[str, ...]]
    repeats: int  # the highest number in a quantifier
    insensitive: bool  # whether case is ignored somewhere


class _Asked(NamedTuple):
    """One question about a character."""

    # splits a text into runs of characters that match, and of others; None for a question about literals, whose
    # characters are known
    runs: Any
    single: Any  # splits a doubled character in two if it matches
    spaces: str  # what a space has become where the question is asked

    def matches(self, char: str) -> bool:
        """Return the answer."""
        return len(self.single.pre_tokenize_str((self.spaces if char == " " else char) * 2)) > 1


@dataclass(frozen=True, eq=False)
class Alphabet:
    """Classes of characters as runs of code points; a class is represented by its lowest character."""

    starts: NDArray[np.uint32]  # first code point of each run; uint32 ``[runs]``
    classes: NDArray[np.uint8]  # class of each run, numbered by lowest character; uint8 ``[runs]``

    @property
    def size(self) -> int:
        """Number of classes."""
        return len(self.representatives)

    @cached_property
    def representatives(self) -> str:
        """The lowest character of each class."""
        _, first = np.unique(self.classes, return_index=True)
        return "".join(map(chr, self.starts[first].tolist()))

    @cached_property
    def _lists(self) -> tuple[list[int], list[int]]:
        return self.starts.tolist(), self.classes.tolist()

    def of(self, text: str) -> bytes:
        """Return the class of each character of a text."""
        starts, classes = self._lists
        return bytes(classes[bisect_right(starts, ord(char)) - 1] for char in text)

    def matching(self, part: str) -> list[int]:
        """Return the classes whose characters a pattern of one character matches."""
        single = Split(Regex(part), "isolated")
        doubled = [char * 2 for char in self.representatives]
        return [number for number, text in enumerate(doubled) if len(single.pre_tokenize_str(text)) > 1]

    def members(self, number: int) -> list[range]:
        """Return the code points of a class, without surrogates."""
        ends = [*self.starts[1:].tolist(), _CODES]
        runs = [range(self.starts[at], ends[at]) for at in np.flatnonzero(self.classes == number).tolist()]
        return [run for run in runs if run[0] not in _SURROGATES]


def alphabet_of(tokenizer: Tokenizer) -> Alphabet:
    """Find the classes of characters that a tokenizer's pre-tokenizer tells apart.

    Raises:
        TokenizerError: It has a step or a pattern whose parts are not known, or it distinguishes too many.
    """
    found = _alphabet(json.dumps(tokenizer.steps("pre_tokenizer")), tokenizer.normalized_space)
    if isinstance(found, str):
        raise TokenizerError(found)
    return found


@cache
def _alphabet(pre_tokenizer: str, spaces: str) -> Alphabet | str:
    """Find the alphabet of steps in JSON, which takes seconds, or say why there is none."""
    steps = json.loads(pre_tokenizer)
    try:
        questions, literals = list(_questions(steps, spaces)), _literals(parts_of(steps))
    except TokenizerError as error:
        return str(error)
    signs = (step["replacement"] for step in steps if step["type"] == "Metaspace")
    alone = set(map(ord, (" ", spaces, *signs, *literals)))
    edges = {0, _SURROGATES.start, _SURROGATES.stop, *alone, *(code + 1 for code in alone)}
    starts = sorted(edges.union(_changes([question.runs for question in questions if question.runs])))
    numbers: dict[tuple[bool, ...], int] = {}
    classes = []
    for code in starts:
        char = "\0" if code in _SURROGATES else chr(code)
        classes.append(numbers.setdefault(tuple(question.matches(char) for question in questions), len(numbers)))
    if len(numbers) > MOST_CLASSES:
        return f"its pre-tokenizer tells {len(numbers)} kinds of characters apart"
    ends = (0, _SURROGATES.start, _SURROGATES.stop)
    kept = [at for at, code in enumerate(starts) if code in ends or classes[at] != classes[at - 1]]
    return Alphabet(np.array(starts, np.uint32)[kept], np.array(classes, np.uint8)[kept])


def parts_of(steps: list[dict[str, Any]]) -> Parts:
    """Take the patterns of a pre-tokenizer's steps apart.

    Raises:
        TokenizerError: A pattern matches in a way that has no such parts, such as a back-reference.
    """
    found = list(map(_parts_of_step, steps))
    return Parts(
        frozenset().union(*(parts.matchers for parts in found)),
        frozenset().union(*(parts.words for parts in found)),
        max((parts.repeats for parts in found), default=1),
        any(parts.insensitive for parts in found),
    )


def _questions(steps: list[dict[str, Any]], spaces: str) -> Iterator[_Asked]:
    for step in steps:
        if step["type"] == "Digits":
            yield _Asked(Digits(individual_digits=False), Digits(individual_digits=True), spaces)
        elif step["type"] == "Punctuation":
            yield _Asked(Punctuation("contiguous"), Punctuation("isolated"), spaces)
        elif step["type"] == "Metaspace":
            spaces = step["replacement"]
            if step["split"]:
                splitting = Metaspace(replacement=spaces, prepend_scheme="never", split=True)
                yield _Asked(splitting, splitting, spaces)
        else:
            parts = _parts_of_step(step)
            matchers = parts.matchers | set(map(_literal, _literals(parts)))
            if parts.insensitive:
                matchers |= {f"(?i:{part})" for part in matchers}
            for part in sorted(matchers):
                runs = None if r"\x{" in part[:7] else Split(_regex(f"(?:{part})+"), "isolated")
                yield _Asked(runs, Split(_regex(part), "isolated"), spaces)


def _regex(part: str) -> Regex:
    try:
        return Regex(part)
    except Exception as error:  # the library raises nothing narrower
        raise TokenizerError(f"its pre-tokenizer's pattern has {part}, no pattern by itself ({error})") from error


def _literals(parts: Parts) -> set[str]:
    """Return the literal characters of patterns; where case is ignored, also what one or several of them match.

    Several in a row match ``ﬆ``, which is one character.
    """
    literals = {chr(int(part[3:-1], 16)) for part in parts.matchers if part.startswith(r"\x{")}
    if not parts.insensitive:
        return literals
    folded = {char.casefold() for char in literals}
    return literals | {char for char in map(chr, range(0x1FFFF)) if folded.issuperset(char.casefold())}


def _changes(runs: list[Any]) -> Iterator[int]:
    """Yield the code points at which the answer to some question changes, and more."""
    for first in range(0, _CODES, _CHUNK):
        codes = [code for code in range(first, first + _CHUNK) if code not in _SURROGATES]
        text = "".join(map(chr, codes))
        yield first
        for _, (start, _) in Sequence(runs).pre_tokenize_str(text):
            yield codes[start]


def _parts_of_step(step: dict[str, Any]) -> Parts:
    match step["type"]:
        case "Split" if "String" in step["pattern"]:
            text = step["pattern"]["String"]
            literals, longest = tuple(map(_literal, text)), max((len(list(run)) for _, run in groupby(text)), default=1)
            return Parts(frozenset(literals), frozenset({literals}), longest, False)
        case "Split":
            return parts_of_pattern(step["pattern"]["Regex"])
        case "ByteLevel" if step["use_regex"]:
            return parts_of_pattern(_BYTE_LEVEL)
        case "Metaspace" | "Digits" | "Punctuation" | "ByteLevel":
            return Parts(frozenset(), frozenset(), 1, False)
    raise TokenizerError(f"its pre-tokenizer {step['type']} has no classes of characters")


def parts_of_pattern(pattern: str) -> Parts:
    """Take an Oniguruma pattern apart.

    Raises:
        TokenizerError: It has a part that is not about single characters.

    >>> sorted(parts_of_pattern(r"'(?i:ll|d)|[A-Z]+").matchers)
    ['[A-Z]', '\\\\x{27}', '\\\\x{64}', '\\\\x{6C}']
    """
    matchers: set[str] = set()
    words: list[list[str]] = [[]]  # literals in a row
    # Of the pattern and of each open group: branches that have ended, and what may stand before this place in its own.
    ended: list[set[tuple[str, ...]]] = [set()]
    begun: list[set[tuple[str, ...]]] = [{()}]
    repeats, insensitive, at = 1, False, 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        assert token is not None  # any character is one
        text, begin, at = token[0], at, token.end()
        literal = part = ""
        match text[0]:
            case "\\" if len(text) == 1:
                raise TokenizerError(f"its pre-tokenizer's pattern ends inside {text!r}")
            case "\\" if text[1] in "bBAzZG":
                matchers |= {r"\w", _literal("\n")}
            case "\\" if text[1] in "0123456789kgKXRyYNOCM":
                raise TokenizerError(f"its pre-tokenizer's pattern uses {text}, which is not about single characters")
            case "\\" if text[1:].isalnum() or len(text) > 2:
                part = text
            case "[":
                at = _end_of_class(pattern, begin)
                part = pattern[begin:at]
            case "(":
                flags = (token["flags"] or "").split("-")[0]
                insensitive |= "i" in flags
                if set(flags) - set("ims") or pattern.startswith("?", at):
                    raise TokenizerError(f"its pre-tokenizer's pattern has a group {pattern[begin : at + 3]!r}")
                if not text.endswith(")"):
                    ended.append(set())
                    begun.append({()})
            case ")":
                inside = ended.pop() | begun.pop()
                begun[-1] = {before + word for before, word in product(begun[-1], inside)}
                if len(begun[-1]) > _MOST_WORDS:
                    raise TokenizerError(f"its pre-tokenizer's pattern has more than {_MOST_WORDS} words")
            case "{" if len(text) > 1:
                repeats = max(repeats, int(token["least"] or 0), int(token["most"] or 0))
            case "^" | "$" | ".":
                matchers.add(_literal("\n"))
            case "|":
                ended[-1] |= begun[-1]
                begun[-1] = {()}
            case char if char not in "*+?":  # any other sign, escaped or not
                literal = text[-1]
        if literal:
            part = _literal(literal)
            words[-1].append(part)
        elif words[-1]:
            words.append([])
        if part:
            matchers.add(part)
            begun[-1] = {(*word, part) for word in begun[-1]}
    longer = {tuple(word) for word in (*words, *ended[0], *begun[0]) if len(word) > 1}
    return Parts(frozenset(matchers), frozenset(longer), repeats, insensitive)


def _literal(char: str) -> str:
    return f"\\x{{{ord(char):X}}}"


def _end_of_class(pattern: str, at: int) -> int:
    """Return where a bracketed class that begins at ``at`` ends; classes may hold classes."""
    depth, place = 0, at
    while place < len(pattern):
        char = pattern[place]
        if char == "\\":
            place += 1
        elif char == "[":
            depth += 1
            place += pattern.startswith("^", place + 1)
            place += pattern.startswith("]", place + 1)
        elif char == "]":
            depth -= 1
            if depth == 0:
                return place + 1
        place += 1
    raise TokenizerError(f"its pre-tokenizer's pattern has no end of the class {pattern[at : at + 20]!r}")
