"""Which ids of a tokenizer never stand for text."""

from spectool.tokenization.backend import explained, pre_tokenized
from spectool.tokenization.parts import TokenizerParts
from spectool.tokenization.roles import names_control
from spectool.tokenization.token_bytes import text_of


def find_specials(parts: TokenizerParts, pad: int | None) -> frozenset[int]:
    """Ids that never stand for text: special, unknown and padding tokens, unless they are also `is_text`."""
    added = {token["id"] for token in parts.spec["added_tokens"] if token["special"]}
    found = added | {index for index in (parts.unknown, pad) if index is not None}
    return frozenset(index for index in found if not is_text(parts, index))


def is_text(parts: TokenizerParts, token: int) -> bool:
    """Whether the model makes this token of plain text, and it is not named like a control token.

    Some fine-tunes declare a token such as ``!`` as padding. It still comes out of every text with an exclamation mark,
    so it keeps its bytes.
    """
    named = names_control(parts.backend.id_to_token(token) or "")
    return token in parts.byte_tokens or (not named and encodes_to(parts, token))


def encodes_to(parts: TokenizerParts, token: int) -> bool:
    """Whether the model, without added tokens, turns the text of a token into that token."""
    model, options = parts.backend.model, parts.spec["model"]
    name = parts.backend.id_to_token(token) or ""
    if model.token_to_id(name) != token:
        return False
    if options["type"] != "BPE":
        return True
    with explained(parts.name):
        if [part.id for part in model.tokenize(name)] != [token]:
            return False
    # A vocabulary that may be used without merging has tokens that the pre-tokenizer never leaves whole.
    text = text_of(parts.bytes_of_names({0: name})[0]) if options.get("ignore_merges") else ""
    return not text or parts.text_splits is None or len(pre_tokenized(parts.text_splits, text, parts.name)) == 1
