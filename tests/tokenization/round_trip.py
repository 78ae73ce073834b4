"""A text that is encoded and decoded again."""

from spectool.tokenization.tokenizer import Tokenizer


def keeps(tokenizer: Tokenizer, text: str) -> bool:
    """Whether the ids of a text have exactly its bytes."""
    return tokenizer.bytes_of(tokenizer.encode(text)) == text.encode()
