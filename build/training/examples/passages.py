"""Passages: text short enough for a row of training, and where its tokens end in bytes."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts import Tokenizer

_CHARACTERS = 16  # looked at for each token of a passage; text has fewer in a token


def byte_ends(tokenizer: Tokenizer, ids: Sequence[int]) -> NDArray[np.int64]:
    """Return the UTF-8 bytes of the text up to and with each token, int64 ``[tokens]``.

    Right where ``tokenizer.bytes_of(ids)`` is the text.
    """
    surfaces = [tokenizer.surfaces[number] for number in ids]
    ends = np.cumsum([len(surface) for surface in surfaces], dtype=np.int64)
    if tokenizer.edges.leading_space and next(filter(None, surfaces), b"").startswith(b" "):
        ends = np.maximum(ends - 1, 0)
    return np.minimum(ends, len(tokenizer.bytes_of(ids)))


def passages(tokenizer: Tokenizer, text: str, most: int) -> Iterator[str]:
    """Cut a text between words into passages of at most ``most`` tokens; one word may have more.

    Spaces at the cuts are left out.
    """
    rest = text.strip()
    while rest:
        head = rest[: most * _CHARACTERS]
        ids = tokenizer.encode(head)
        if len(ids) <= most and len(head) == len(rest):
            yield rest
            return
        ends = byte_ends(tokenizer, ids)
        fit = head.encode()[: ends[min(most, len(ids)) - 1] if ids else 0].decode(errors="ignore")
        cut = max(fit.rfind(" "), fit.rfind("\n"))
        passage = fit[:cut] if cut > 0 else fit or head[:most]
        if passage.strip():
            yield passage.rstrip()
        rest = rest[len(passage) :].lstrip()
