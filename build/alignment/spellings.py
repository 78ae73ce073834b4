"""How one tokenizer's tokens are spelled in another's ids."""

from collections.abc import Iterable
from itertools import islice

import tokenizers

from spectool.artifacts.alignment import Spellings
from spectool.tokenization.backend import encoded
from spectool.tokenization.incremental.ids_or_text import reasons_for_text
from spectool.tokenization.running_text import RunningText
from spectool.tokenization.token_bytes import text_of
from spectool.tokenization.tokenizer import Tokenizer

_BATCH = 8192


def spellings(source: Tokenizer, other: Tokenizer) -> Spellings:
    """Spell every token of ``source`` in ids of ``other``."""
    return TokenSpeller(source, other).spell(source.token_bytes)


class TokenSpeller:
    """Spells tokens in ids of another tokenizer, inside a text and at a text's start.

    At a start, the artificial space of the source is removed and that of the other is added.
    """

    def __init__(self, source: Tokenizer, other: Tokenizer) -> None:
        """Prepare for tokens of ``source`` and ids of ``other``."""
        self._joins = not reasons_for_text(other)
        self._backend = RunningText(other).backend if self._joins else other.backend
        self._name = other.name
        self._lengths = list(map(len, other.token_bytes))
        self._off = source.leading_space
        self._on = other.leading_space and self._joins

    def spell(self, token_bytes: Iterable[bytes]) -> Spellings:
        """Spell tokens with these bytes.

        Tokens that are not whole characters, special tokens, and tokens with a character that the other tokenizer
        cannot write have no spelling.
        """
        texts = list(map(text_of, token_bytes))
        starts = [text.removeprefix(" ") for text in texts] if self._off else texts
        if self._on:
            starts = [" " + start if text else "" for start, text in zip(starts, texts, strict=True)]
        spelled = _encode_all(self._backend, dict.fromkeys(filter(None, (*texts, *starts))), self._name)
        if self._joins:
            length = self._lengths.__getitem__
            spelled = {text: ids for text, ids in spelled.items() if sum(map(length, ids)) == len(text.encode())}
        return Spellings(*([spelled.get(text, ()) for text in column] for column in (texts, starts)))


def _encode_all(backend: tokenizers.Tokenizer, texts: Iterable[str], name: str) -> dict[str, tuple[int, ...]]:
    spelled: dict[str, tuple[int, ...]] = {}
    rest = iter(texts)
    while batch := list(islice(rest, _BATCH)):
        encodings = encoded(backend.encode_batch_fast, batch, name)
        spelled.update(zip(batch, (tuple(encoding.ids) for encoding in encodings), strict=True))
    return spelled
