"""How one tokenizer's tokens are spelled in another's ids."""

from collections.abc import Iterable
from itertools import islice

import tokenizers

from spectool.artifacts.formats.alignment import Spellings
from spectool.artifacts.tokenizer.tokenizer import Tokenizer
from spectool.build.alignment.merge_table import has_lemma

_BATCH = 8192


def spellings(source: Tokenizer, other: Tokenizer) -> Spellings:
    """Spell every token of ``source`` in ids of ``other``: inside a text, after a space, at a text's start.

    After a space means: the space and the token together. At a start, the artificial space of
    ``source`` is taken away and that of ``other`` is put on. Tokens that are no whole characters,
    special tokens, and those with a character that ``other`` cannot spell, have no spelling.
    """
    backend = other.text_backend if has_lemma(other) else other.backend
    texts: list[str | None] = []
    for surface in source.surfaces:
        try:
            texts.append(surface.decode() or None)
        except UnicodeDecodeError:
            texts.append(None)
    after_space = [None if text is None else " " + text for text in texts]
    starts = texts
    if source.edges.leading_space:
        starts = [text[1:] if text and text.startswith(" ") else text for text in texts]
    if other.edges.leading_space and has_lemma(other):
        starts = [None if text is None else " " + text for text in starts]
    spelled = _encode_all(backend, dict.fromkeys(text for text in (*texts, *after_space, *starts) if text))
    if has_lemma(other):
        lengths = list(map(len, other.surfaces))
        gaps = [t for t, ids in spelled.items() if sum(map(lengths.__getitem__, ids)) != len(t.encode())]
        for text in gaps:
            del spelled[text]
    return Spellings(*([spelled.get(text or "", ()) for text in column] for column in (texts, after_space, starts)))


def _encode_all(backend: tokenizers.Tokenizer, texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    spelled: dict[str, tuple[int, ...]] = {}
    rest = iter(texts)
    while batch := list(islice(rest, _BATCH)):
        encodings = backend.encode_batch_fast(batch, add_special_tokens=False)
        spelled.update(zip(batch, (tuple(encoding.ids) for encoding in encodings), strict=True))
    return spelled
