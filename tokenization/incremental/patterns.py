"""Which pre-tokenizers can be followed by the kind of each character, and the kinds that they tell apart.

A pattern is followed if it is built from literals, classes of characters (``\\p{L}``, ``[^\\r\\n]``), groups,
alternatives, small counts of one character and ``(?!\\S)``. That covers the patterns of GPT-2, Llama 3, Qwen, GPT-4o,
DeepSeek and their relatives. What looks further around (``(?=(\\d{3})*\\b)``), counts groups of characters or refers
back makes a split depend on text of any length, so such a tokenizer goes through text.
"""

import re
from collections.abc import Iterator
from typing import Any

from tokenizers import Regex
from tokenizers.pre_tokenizers import Digits, Punctuation, Split

from spectool.tokenization.tokenizer import Tokenizer

# GPT-2's pattern, which `ByteLevel` has built in.
_BYTE_LEVEL = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# What matches one character.
_CLASS = r"\[\^?(?:\\[pP]\{\^?\w+\}|\\.|&(?!&)|[^\]\\\[&])++\]"
_ATOM = rf"{_CLASS}|\\[pP]\{{\^?\w+\}}|\\[sSdDwWrnt]|\\[^\w\s]|[^\\()\[\]{{}}|*+?.^$]"
_ELEMENT = rf"\(\?!\\S\)|\((?:\?i?:)?|\)\??|\||(?:{_ATOM})(?:[*+?]{{1,2}}|\{{\d(?:,\d?)?\}})?"
_FOLLOWED = re.compile(rf"(?:{_ELEMENT})++")  # possessive, so that no pattern takes long
_WORD = re.compile(r"'[a-z]{1,2}")
_NEIGHBOURS = re.compile(rf"({_ATOM})[*+]{{1,2}}\??(?=({_ATOM})[*+])")
MOST_COUNTED = 4  # characters that a pattern may count, or that a literal split may have
UNKNOWN = 255  # the class of a character that none of the table's characters is like


def unfollowed(step: dict[str, Any]) -> str:
    """Why a step of a pre-tokenizer cannot be followed by kinds of characters; empty where it can."""
    if step["type"] != "Split":
        return ""
    pattern = step["pattern"]
    if "String" in pattern:
        text = pattern["String"]
        return "" if len(text) <= MOST_COUNTED else f"its pre-tokenizer looks for {text!r}"
    counted = max(map(int, re.findall(r"(?<=[{,])\d+(?=[,}])", pattern["Regex"])), default=0)
    if counted > MOST_COUNTED:
        return f"its pre-tokenizer counts up to {counted} characters"
    try:
        Regex(pattern["Regex"])
    except Exception as error:  # the library raises nothing narrower
        return f"its pre-tokenizer's pattern is not valid ({error})"
    found = _FOLLOWED.match(pattern["Regex"])
    rest = pattern["Regex"][found.end() if found else 0 :]
    return f"its pre-tokenizer's pattern goes beyond single characters at {rest[:12]!r}" if rest else ""


def words(steps: list[dict[str, Any]]) -> list[str]:
    """The literal words that patterns look for, such as ``'re``, and the strings that text is split at."""
    found = [step["pattern"]["String"] for step in steps if step["type"] == "Split" and "String" in step["pattern"]]
    return sorted({*found, *(word for pattern in _patterns(steps) for word in _WORD.findall(_spread(pattern)))})


def _spread(pattern: str) -> str:
    """Write ``'(?:re|ve)`` and ``'(?i:[sdmt]|ll)`` as words."""
    groups = re.findall(r"'\((?:\?i?:)?([^()]*)\)", pattern)
    endings = (ending for group in groups for ending in group.split("|"))
    spread = (f"'{each}" for ending in endings for each in (ending.strip("[]") if ending[:1] == "[" else [ending]))
    return " ".join([pattern, *spread])


def shared(steps: list[dict[str, Any]], characters: str) -> Iterator[tuple[list[int], list[int]]]:
    """The characters that either of two neighbouring repeated parts of a pattern takes, and those that both take.

    Which part takes one of the latter depends on text of any length, such as the letters without case of GPT-4o.
    Characters are given by their places in ``characters``.
    """
    for pattern in _patterns(steps):
        for neighbours in _NEIGHBOURS.findall(pattern):
            parts = [Split(Regex(atom), "isolated") for atom in neighbours]
            taken = [sum(_takes(part, char) for part in parts) for char in characters]
            if 2 in taken:
                numbers = range(len(taken))
                yield (
                    [number for number in numbers if taken[number]],
                    [number for number in numbers if taken[number] == 2],
                )


def _takes(part: Any, char: str) -> bool:
    return len(part.pre_tokenize_str(char * 2)) > 1


def _patterns(steps: list[dict[str, Any]]) -> Iterator[str]:
    for step in steps:
        if step["type"] == "Split" and "Regex" in step["pattern"]:
            yield step["pattern"]["Regex"]
        elif step["type"] == "ByteLevel" and step["use_regex"]:
            yield _BYTE_LEVEL


class CharacterClasses:
    """Numbers characters by class: those of one class are the same to every part of every pattern."""

    def __init__(self, tokenizer: Tokenizer, characters: str | None = None) -> None:
        """Prepare for a tokenizer that is followed.

        Args:
            tokenizer: Its pre-tokenizer is asked about each character that is met.
            characters: The first character of each class; None to find them.
        """
        steps = tokenizer.steps("pre_tokenizer")
        self._parts = list(_parts(steps))
        signs = (step["replacement"] for step in steps if step["type"] == "Metaspace")
        self._alone = {" ", tokenizer.normalized_space, *signs}
        if characters is None:
            found: dict[Any, str] = {}
            for char in _candidates(steps, self._alone):
                found.setdefault(self._signature(char), char)
            characters = "".join(found.values())
        self.characters = characters
        self._numbers = {self._signature(char): number for number, char in enumerate(characters)}
        self._known: dict[str, int] = {}

    def of(self, text: str) -> bytes:
        """The class of each character of a text; `UNKNOWN` for one that is like none of `characters`."""
        known = self._known
        for char in text:
            if char not in known:
                known[char] = self._numbers.get(self._signature(char), UNKNOWN)
        return bytes(map(known.__getitem__, text))

    def _signature(self, char: str) -> Any:
        if char in self._alone:
            return char
        return tuple(_takes(part, char) for part in self._parts)


def _parts(steps: list[dict[str, Any]]) -> Iterator[Any]:
    """Yield what answers each question about a character, by splitting a doubled one."""
    atoms: set[str] = set()
    for step in steps:
        if step["type"] == "Digits":
            yield Digits(individual_digits=True)
        elif step["type"] == "Punctuation":
            yield Punctuation("isolated")
        elif step["type"] == "Split" and "String" in step["pattern"]:
            atoms.update(map(re.escape, step["pattern"]["String"]))
    for pattern in _patterns(steps):
        found = re.findall(_ATOM, re.sub(r"\(\?!|\(\?i?:|\{[\d,]+\}", "", pattern))
        atoms.update(f"(?i:{atom})" if "(?i:" in pattern and len(atom) == 1 else atom for atom in found)
        atoms.update(found)
    for atom in sorted(atoms):
        yield Split(Regex(atom), "isolated")


def _candidates(steps: list[dict[str, Any]], alone: set[str]) -> Iterator[str]:
    """Yield characters of every kind, common ones first, and those that the patterns name."""
    yield from sorted(alone)
    for codes in (range(0x530), range(0x530, 0x3400, 3), range(0x3400, 0xD800, 61), range(0xE000, 0x20000, 61)):
        yield from map(chr, codes)
    yield from sorted({char for step in steps for char in str(step.get("pattern", ""))})
