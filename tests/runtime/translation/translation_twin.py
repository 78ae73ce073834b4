"""The slow, readable twin of byte-aligned translation: whole strings, encoded and compared by bytes.

    committed   B P     B: whole characters, P: the bytes of an unfinished one
    drafted     B P S   S: from the frontier to the last whole character

Committed bytes must be the beginning of valid UTF-8. Special tokens spell nothing, and none is
read out of text. The one space that a tokenizer puts before a text is no part of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import tokenizers

from spectool.tokenization.tokenizer import Tokenizer

_ANCHOR = "ꙮ"


@dataclass(frozen=True)
class Translated:
    """What a translator should say of one draft.

    Attributes:
        ids: Target ids of the proposal.
        boundary: The frontier is a token boundary in the target's encoding of the whole text.
        spelled: S, the bytes that ``ids`` stand for. Empty where the draft contradicts the committed
            bytes or ends no character.
    """

    ids: list[int]
    boundary: bool
    spelled: bytes


class TranslationTwin:
    """Translates between two tokenizers by encoding everything anew."""

    def __init__(self, draft: Tokenizer, target: Tokenizer) -> None:
        self.draft = without_specials(draft)
        self.target = without_specials(target)

    def context(self, committed: Sequence[int]) -> list[int]:
        """Return the canonical draft ids of the committed text, but for an unfinished character."""
        return self.draft.encode(whole(text_bytes(self.target, committed)).decode())

    def translate(self, committed: Sequence[int], drafts: Sequence[int], healed: bool = False) -> Translated:
        """Return the target ids of a draft; ``healed``: its first token replaces the last context token.

        Raises:
            ValueError: The target does not give the text back (NFKC, unknown characters): there is no oracle.
        """
        before = text_bytes(self.target, committed)
        context = self.context(committed)
        if healed:
            context.pop()
        text = whole(text_bytes(self.draft, [*context, *drafts]))
        if not text.startswith(before) or text == before:
            return Translated([], False, b"")
        spelled = text[len(before) :]
        ids = self.target.encode(text.decode())
        if text_bytes(self.target, ids) != text:
            raise ValueError(f"{self.target.name} does not give this text back: {text!r}")
        cuts = list(accumulate((len(self.target.token_bytes[i]) for i in ids), initial=0))
        # At the very start nothing is committed, not even the space before the text.
        begun = any(self.target.token_bytes[i] for i in committed)
        frontier = cuts[-1] - len(spelled) if begun else 0
        if frontier in cuts:
            return Translated(ids[cuts.index(frontier) :], True, spelled)
        if spelled[0] & 0xC0 == 0x80:  # no string begins inside a character
            return Translated([], False, b"")
        return Translated(encode_inside(self.target, [spelled.decode()])[0], False, spelled)


def text_bytes(tokenizer: Tokenizer, ids: Sequence[int]) -> bytes:
    """Return the bytes of a text that goes on: as `Tokenizer.bytes_of`, with any space at its end."""
    joined = b"".join(tokenizer.token_bytes[i] for i in ids)
    return joined.removeprefix(b" ") if tokenizer.leading_space else joined


def whole(data: bytes) -> bytes:
    """Return the bytes up to the last whole character.

    >>> whole("так".encode()[:-1]).decode()
    'та'
    """
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return data[: error.start]
    return data


def without_specials(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy that reads ``</s>`` in a text as five characters."""
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    backend.encode_special_tokens = True
    return replace(tokenizer, backend=backend)


def encode_inside(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Encode texts as they are spelled inside a word, where no space is put before them.

    Tokenizers that cannot spell a text so (Unigram, here and there) give what they write at the start of one.
    """
    plain = tokenizer.encode_batch(texts)
    if not tokenizer.leading_space:
        return plain
    before = len(tokenizer.encode(_ANCHOR))
    inside = [ids[before:] for ids in tokenizer.encode_batch([_ANCHOR + text for text in texts])]
    return [
        within if b"".join(map(tokenizer.token_bytes.__getitem__, within)) == text.encode() else alone
        for text, within, alone in zip(texts, inside, plain, strict=True)
    ]
