"""Between which two characters a text can be cut, because the tokenizer treats both sides by themselves.

The tokenizer is asked, once for each pair of characters that meets. A border is *sure* if in all of a few contexts

- its pre-tokenizer splits either side as it splits it alone, and
- it splits between the two; or it has no pattern, so that it sees neighbours only, and no token of the vocabulary has
  the two side by side, so that nothing can merge them;

and if neither an added token nor a string that text is split at has them side by side. The contexts are those on which
the patterns of known pre-tokenizers depend: letters of either case, digits, which are counted, endings such as ``'s``,
white space, runs, and what no pattern takes. After ``..``, a combining mark joins the punctuation; after ``.``, it may
start a word.
"""

from functools import lru_cache
from itertools import pairwise

import numpy as np

from spectool.tokenization.backend import call_backend
from spectool.tokenization.token_bytes import TokenBytes
from spectool.tokenization.tokenizer import Tokenizer

_BEFORE = ("", "a", "A", "1", ".", "..", " .", "\U0001f600", "'", " ", "  ", "\n")
_APOSTROPHES = "'’"
_AFTER = ("", "a", "A", "s", "e", "1", ".", " ", " a", "\n", "\r")
_BOTH = (("a", "a"), ("a", " a"), (" ", "a"), (" ", " a"), (".", " a"))
_REMEMBERED = 1 << 16  # pairs of characters, and texts of up to four


class Borders:
    """The sure borders of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._name = tokenizer.name
        self._splits, self._space = tokenizer.text_splits, tokenizer.normalized_space
        steps = tokenizer.steps("pre_tokenizer")
        patterns = [step["pattern"] for step in steps if step["type"] == "Split"]
        whole = (*tokenizer.running_added.values(), *(pattern["String"] for pattern in patterns if "String" in pattern))
        self._looks_around = any("Regex" in pattern for pattern in patterns) or any(
            step["type"] == "ByteLevel" and step["use_regex"] for step in steps
        )
        self._whole = frozenset(pair for text in whole for pair in pairwise(text))
        text = TokenBytes.of(tokenizer.running_bytes)
        inside = np.ones(len(text.values), np.bool_)
        inside[text.offsets[text.offsets < len(text.values)]] = False  # a token's first byte follows none of its own
        neighbours = (text.values[:-1].astype(np.int32) << 8 | text.values[1:])[inside[1:]]
        self._neighbours = np.zeros(1 << 16, np.bool_)
        self._neighbours[neighbours] = True
        self._starts = lru_cache(_REMEMBERED)(self._asked)
        self.are_sure = lru_cache(_REMEMBERED)(self._are_sure)

    def _asked(self, text: str) -> frozenset[int]:
        """Where pre-tokens of a text begin, except for its own beginning."""
        if self._splits is None:
            return frozenset()
        pieces = call_backend(self._splits.pre_tokenize_str, text.replace(" ", self._space), self._name)
        return frozenset(start for _, (start, _) in pieces) - {0}

    def _are_sure(self, before: str, after: str) -> bool:
        if (before, after) in self._whole or before in _APOSTROPHES:  # of an ending, more is to come
            return False
        merges = self._looks_around or bool(self._neighbours[before.encode()[-1] << 8 | after.encode()[0]])
        pairs = [(start + before, after) for start in (*_BEFORE, before, before * 2)]
        pairs += ((before, after + end) for end in (*_AFTER, after, after * 2))
        pairs += ((start + before, after + end) for start, end in _BOTH)
        return all(self._apart(left, right, merges) for left, right in pairs)

    def _apart(self, left: str, right: str, merges: bool) -> bool:
        """Whether two texts side by side are split as each alone; between them as well, if they might merge."""
        place, found = len(left), self._starts(left + right)
        alone = self._starts(left) | {place + start for start in self._starts(right)}
        return found - {place} == alone and (place in found or not merges)
