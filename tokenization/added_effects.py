"""What added tokens do to a text that contains them: which spaces get lost, or written, around each of them.

Added tokens are cut out of a text before anything else. What stands around them is then tokenized as texts of their
own, and a token may take spaces with it. What comes of that is seen by trying each token between two letters.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spectool.tokenization.tokenizer import Tokenizer

_SPACES = ("", " ", "\n")
_LETTERS = "aeo"  # several, since an added token may be one of them
LETTERS = tuple(letter + space + letter for letter in _LETTERS for space in _SPACES)
"""All that is encoded apart from the tokens themselves."""
_WRITTEN = "writes a space after"


def added_effects(
    tokenizer: Tokenizer, added: Iterable[Mapping[str, Any]], adds_space: bool
) -> Iterator[tuple[str, str]]:
    """Yield each change that an added token makes: what is done, and to which token.

    Args:
        tokenizer: A tokenizer that keeps spaces, and does not stop at text that it has no token for.
        added: Entries of the ``added_tokens`` of its `spec`; special tokens are passed over.
        adds_space: Whether it writes a space before every text, which then need not be said of what follows a token.
    """
    ordinary = [token for token in added if token["id"] not in tokenizer.specials]
    surfaces = tokenizer.surfaces_of(token["id"] for token in ordinary)
    said = (_said(tokenizer, ids, adds_space) for ids in tokenizer.encode_batch(LETTERS))
    kept = [text for text, restored in zip(LETTERS, said, strict=True) if text == restored]
    around = max(([text for text in kept if text[0] == letter] for letter in _LETTERS), key=len)
    texts = [[text[:-1] + token["content"] + text[1:] for token in ordinary] for text in around]
    tried = map(tokenizer.encode_batch, texts)
    for token, surface, *encoded in zip(ordinary, surfaces, *tried, strict=True):
        index, name, text = token["id"], token["content"], surface.decode("utf-8", "replace")
        if index in tokenizer.redecoded or text.strip(" ") not in _spellings(tokenizer, name):
            yield "decodes", f"{name!r} as {text!r}"
            continue
        if tokenizer.space_sign in name and tokenizer.space_sign != " ":
            continue
        strips = {"drops white space before": token["lstrip"], "drops white space after": token["rstrip"]}
        effects = {effect: None for effect, flag in strips.items() if flag}
        for letters, ids in zip(around, encoded, strict=True):
            if index in ids:
                written = letters[:-1] + name + letters[1:]
                effects |= dict.fromkeys(_around(_said(tokenizer, ids, adds_space), text, written))
        yield from ((effect, repr(name)) for effect in effects if effect != _WRITTEN or not adds_space)


def _said(tokenizer: Tokenizer, ids: list[int], adds_space: bool) -> str:
    return tokenizer.bytes_of(ids).decode("utf-8", "replace").removeprefix(" " * adds_space)


def _around(restored: str, text: str, said: str) -> Iterator[str]:
    """Yield what has changed around a token with this text, where ``said`` became ``restored``."""
    if not text.strip():  # its own white space cannot be told from what is around it
        if len(restored) != len(said):
            yield _WRITTEN if len(restored) > len(said) else "drops white space around"
        return
    left, found, right = restored[1:-1].partition(text.strip())
    before, behind = said[1:-1].partition(text.strip())[::2]
    if found and len(left) != len(before):
        yield "writes a space before" if len(left) > len(before) else "drops white space before"
    if found and len(right) != len(behind):
        yield _WRITTEN if len(right) > len(behind) else "drops white space after"


def _spellings(tokenizer: Tokenizer, name: str) -> set[str]:
    """Return the text of a token as it is written and as it is normalized, without spaces at its ends."""
    normalizer = tokenizer.backend.normalizer
    texts = {name, name if normalizer is None else normalizer.normalize_str(name)}
    return {text.replace(tokenizer.space_sign, " ").strip(" ") for text in texts}
