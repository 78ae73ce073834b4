"""What added tokens do to a text that contains them: which spaces get lost, or written, around each of them.

Added tokens are cut out of a text before anything else. What stands around them is then tokenized as texts of their
own, and a token may take spaces with it. What comes of that is seen by trying each token between two letters.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spectool.artifacts.tokenizer.tokenizer import Tokenizer

LETTERS = "a a"
"""All that is encoded apart from the tokens themselves."""


def added_effects(tokenizer: Tokenizer, added: Iterable[Mapping[str, Any]], after: bool) -> Iterator[tuple[str, str]]:
    """Yield each change that an added token makes: what is done, and to which token.

    Args:
        tokenizer: A tokenizer that keeps spaces, and does not stop at text that it has no token for.
        added: Entries of the ``added_tokens`` of its `spec`; special tokens are passed over.
        after: Whether to name spaces that are written after a token.
    """
    ordinary = [token for token in added if token["id"] not in tokenizer.specials]
    surfaces = tokenizer.surfaces_of(token["id"] for token in ordinary)
    tight = tokenizer.encode_batch([f"a{token['content']}a" for token in ordinary])
    spaced = tokenizer.encode_batch([f"a {token['content']} a" for token in ordinary])
    for token, surface, *tried in zip(ordinary, surfaces, tight, spaced, strict=True):
        index, name, text = token["id"], token["content"], surface.decode("utf-8", "replace")
        if index in tokenizer.redecoded or text.strip(" ") not in _spellings(tokenizer, name):
            yield "decodes", f"{name!r} as {text!r}"
            continue
        core = text.strip(" ")
        if not core or (tokenizer.space_sign in name and tokenizer.space_sign != " "):
            continue
        for ids, wanted in zip(tried, (False, True), strict=True):
            left, found, right = tokenizer.bytes_of(ids).decode("utf-8", "replace").partition(core)
            if not found or index not in ids:
                continue
            if left.endswith(" ") != wanted:
                yield "drops a space before" if wanted else "writes a space before", repr(name)
            if right.startswith(" ") != wanted and (wanted or after):
                yield "drops a space after" if wanted else "writes a space after", repr(name)


def _spellings(tokenizer: Tokenizer, name: str) -> set[str]:
    """Return the text of a token as it is written and as it is normalized, without spaces at its ends."""
    normalizer = tokenizer.backend.normalizer
    texts = {name, name if normalizer is None else normalizer.normalize_str(name)}
    return {text.replace(tokenizer.space_sign, " ").strip(" ") for text in texts}
