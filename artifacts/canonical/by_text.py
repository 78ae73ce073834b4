"""Canonical ids of a growing text where no lemma helps: Unigram, WordPiece, BPE with word-end marks.

Text is encoded again from a word start a few words back. These tokenizers split at spaces before anything else, so that
what comes before a word start does not change. A sign stands for what was cut off, so that the rest is spelled as
inside a text. Some tokenizers put a space before everything that they encode.
"""

import codecs
from collections.abc import Sequence
from itertools import accumulate

from spectool.artifacts.canonical.by_ids import Change
from spectool.artifacts.tokenizer.tokenizer import Tokenizer

_WORDS = 3  # word starts to go back
_CHARACTER = 4  # bytes of the longest character
_CUT = b"&"  # stands for what was cut off


class CanonicalText:
    """Encodes the end of a text again and again. Holds no text of its own.

    Attributes:
        string_calls: How often text was encoded.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Prepare for ``tokenizer``; special tokens are not looked for in text."""
        self.string_calls = 0
        self._surfaces = tokenizer.surfaces
        self._backend = tokenizer.plain_backend
        self._before = len(self.encode(_CUT))
        self.string_calls = 0

    def join(self, ids: Sequence[int], so_far: bytes, data: bytes) -> Change:
        """Append ``data`` to a text.

        Args:
            ids: The text's ids so far.
            so_far: Its bytes, or the `recent` ones.
            data: What follows; both are whole characters.

        Returns:
            ``start, tail`` such that ``ids[:start] + tail`` are the ids of the whole text.
        """
        before = recent(so_far)
        old = self.encode(before) if before else []
        cut = self._before if before.startswith(_CUT + b" ") else 0  # a text that begins so by itself is joined alike
        return len(ids) - len(old) + cut, self.encode(before + data)[cut:]

    def following(self, so_far: bytes, data: bytes) -> tuple[list[int], bool]:
        """Return the ids of ``data`` after ``so_far``, and whether a boundary between the two holds.

        Where it does not, the ids are those of ``data`` by itself.
        """
        before = recent(so_far)
        ids = self.encode(before + data)
        if not before:
            return ids, True
        spelled = b"".join(map(self._surfaces.__getitem__, ids))
        artificial = len(spelled) - len(before + data) if spelled.endswith(before + data) else 0
        if spelled.startswith(before, artificial):
            frontier = artificial + len(before)
        else:  # text that does not come back as it was
            old = self.encode(before)
            if ids[: len(old)] == old:
                return ids[len(old) :], True
            frontier = sum(len(self._surfaces[token]) for token in old)
        begins = list(accumulate((len(self._surfaces[token]) for token in ids[:-1]), initial=0))
        return (ids[begins.index(frontier) :], True) if frontier in begins else (self.encode(data), False)

    def encode(self, data: bytes) -> list[int]:
        """Encode bytes as a text; what is no UTF-8 is left out."""
        self.string_calls += 1
        ids: list[int] = self._backend.encode(data.decode("utf-8", "ignore"), add_special_tokens=False).ids
        return ids


def recent(data: bytes) -> bytes:
    """Return the last few words of a text and what follows them, behind `_CUT`; all of a short text.

    It is cut where a space follows something else than white space: there every tokenizer begins anew.
    """
    at, words = len(data), 0
    while words < _WORDS:
        at = data.rfind(b" ", 0, at)
        if at <= 0 or data[:at] == _CUT:
            return data
        words += not data[max(0, at - _CHARACTER) : at].decode("utf-8", "ignore")[-1:].isspace()
    return _CUT + data[at:]


def whole_characters(data: bytes) -> int:
    """Return how many bytes are whole characters, or can never become any: all but an unfinished end."""
    return codecs.utf_8_decode(data, "ignore")[1]
