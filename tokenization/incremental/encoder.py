"""What joins ids of one tokenizer: ids (`by_ids`), or text (`by_text`)."""

from spectool.tokenization.incremental.by_ids import IncrementalBPE
from spectool.tokenization.incremental.by_text import TailReencoder
from spectool.tokenization.tokenizer import Tokenizer

IncrementalEncoder = IncrementalBPE | TailReencoder


def encoder_of(tokenizer: Tokenizer, by_ids: bool) -> IncrementalEncoder:
    """What joins ids of a tokenizer, on ids or through text."""
    return IncrementalBPE(tokenizer) if by_ids else TailReencoder(tokenizer)
