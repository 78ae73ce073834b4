"""How one tokenizer's tokens are spelled in another's ids, inside a text."""

from spectool.tokenization.backend import encode_many
from spectool.tokenization.incremental.ids_or_text import reasons_for_text
from spectool.tokenization.token_bytes import text_of
from spectool.tokenization.tokenizer import Tokenizer


def spellings(source: Tokenizer, other: Tokenizer) -> list[tuple[int, ...]]:
    """Every token of ``source`` in ids of ``other``.

    Tokens that are not whole characters, special tokens, and tokens with a character that the other tokenizer cannot
    write have no spelling.
    """
    joins = not reasons_for_text(other)
    backend = other.running_backend if joins else other.backend
    texts = list(map(text_of, source.token_bytes))
    distinct = list(dict.fromkeys(filter(None, texts)))
    spelled = {text: tuple(ids) for text, ids in encode_many(backend, distinct, other.name)}
    if joins:
        length = list(map(len, other.token_bytes)).__getitem__
        spelled = {text: ids if sum(map(length, ids)) == len(text.encode()) else () for text, ids in spelled.items()}
    return [spelled.get(text, ()) for text in texts]
