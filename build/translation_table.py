"""How one tokenizer's tokens are spelled in another's ids."""

from collections.abc import Sequence
from itertools import islice

from spectool.artifacts.alignment import Spellings
from spectool.artifacts.pretokens import text_backend
from spectool.artifacts.tokenizer import Tokenizer
from spectool.build.merges import has_lemma

_BATCH = 8192


def spellings(source: Tokenizer, other: Tokenizer) -> Spellings:
    """Spell every token of ``source`` in ids of ``other``: inside a text, after a space, at a text's start.

    After a space means: the space and the token together. At a start, the artificial space of
    ``source`` is taken away and that of ``other`` is put on. Tokens that are no whole characters,
    and special tokens, have no spelling.
    """
    backend = other.backend
    if has_lemma(other):
        backend = text_backend(other)
    texts: list[str | None] = []
    for surface in source.surfaces:
        try:
            texts.append(surface.decode() or None)
        except UnicodeDecodeError:
            texts.append(None)
    inside = _encode_all(backend, texts)
    after_space = _encode_all(backend, [None if text is None else " " + text for text in texts])
    adds, removes = other.edges.leading_space and has_lemma(other), source.edges.leading_space
    stripped = [text is not None and removes and text.startswith(" ") for text in texts]
    if adds:
        starts = [inside[i] if bare else after_space[i] for i, bare in enumerate(stripped)]
    else:
        bare_texts = [text[1:] if text and bare else None for text, bare in zip(texts, stripped, strict=True)]
        bare_ids = _encode_all(backend, bare_texts)
        starts = [bare_ids[i] if bare else inside[i] for i, bare in enumerate(stripped)]
    return Spellings(inside, after_space, starts)


def _encode_all(backend: object, texts: Sequence[str | None]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    rest = iter(texts)
    while batch := list(islice(rest, _BATCH)):
        encodings = backend.encode_batch_fast([text or "" for text in batch], add_special_tokens=False)  # type: ignore[attr-defined]
        found += [tuple(encoding.ids) for encoding in encodings]
    return found
