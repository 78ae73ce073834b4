"""Canonical ids of a growing text where no lemma helps: Unigram, WordPiece, BPE with word-end marks.

Text is encoded again from a word start a few words back. These tokenizers split at spaces before
anything else, so that what comes before a word start does not change.
"""

from collections.abc import Sequence

from spectool.artifacts.tokenizer.tokenizer import Tokenizer

Change = tuple[int, Sequence[int]]  # ids[:start] stay, and these follow
_WORDS = 3  # word starts to go back


class CanonicalText:
    """Encodes the end of a text again and again. Holds no text of its own.

    Attributes:
        string_calls: How often text was encoded.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Prepare for ``tokenizer``; special tokens are not looked for in text."""
        self.string_calls = 0
        self._surfaces = tokenizer.surfaces
        self._backend = type(tokenizer.backend).from_str(tokenizer.backend.to_str())
        self._backend.encode_special_tokens = True

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
        return len(ids) - len(old), self.encode(before + data)

    def following(self, so_far: bytes, data: bytes) -> tuple[list[int], bool]:
        """Return the ids of ``data`` after ``so_far``, and whether a boundary between the two stays.

        Where it does not, the ids are those of ``data`` by itself.
        """
        before = recent(so_far)
        ids = self.encode(before + data)
        if not before:
            return ids, True
        spelled = b"".join(map(self._surfaces.__getitem__, ids))
        artificial = int(spelled.startswith(b" ") and not before.startswith(b" "))
        if spelled.startswith(before, artificial):
            frontier = artificial + len(before)
        else:  # text that does not come back as it was
            old = self.encode(before)
            if ids[: len(old)] == old:
                return ids[len(old) :], True
            frontier = sum(len(self._surfaces[token]) for token in old)
        end = 0
        for count, token in enumerate(ids):
            if end == frontier:
                return ids[count:], True
            end += len(self._surfaces[token])
        return self.encode(data), False

    def encode(self, data: bytes) -> list[int]:
        """Encode bytes as a text; what is no UTF-8 is left out."""
        self.string_calls += 1
        ids: list[int] = self._backend.encode(data.decode("utf-8", "ignore"), add_special_tokens=False).ids
        return ids


def recent(data: bytes) -> bytes:
    """Return the last few words of a text and what follows them, from the space before; all of a short text."""
    at = len(data)
    for _ in range(_WORDS):
        at = data.rfind(b" ", 0, at)
        while at > 0 and data[at - 1 : at].isspace():
            at -= 1
        if at <= 0:
            return data
    return data[at:]
