"""The vocabulary intersection of two tokenizers, on bytes.

Token strings are never compared: ``Ġkot`` and ``▁kot`` are the same five bytes. Special
tokens have no bytes and are paired by name, or by role where they have no name in both.
"""

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.alignment import NONE
from spectool.tokenization.tokenizer import Tokenizer


def intersect(source: Tokenizer, other: Tokenizer) -> NDArray[np.int32]:
    """For every id of ``source``, the id of ``other`` with the same bytes or the same role.

    Where several ids of ``other`` have the same bytes, the one that its `encode` writes wins:
    ordinary tokens before byte-fallback tokens, then the lowest id.

    Returns:
        int32, shape ``[source ids]``; -1 where there is none.
    """
    # Later ids take the place of earlier ones, so the preferred ones come last.
    order = sorted(range(other.size), key=lambda index: (index not in other.byte_tokens, -index))
    counterpart = {other.token_bytes[index]: index for index in order} | {b"": NONE}
    ids = [counterpart.get(raw, NONE) for raw in source.token_bytes]
    for mine, theirs in _role_pairs(source, other):
        ids[mine] = theirs
    return np.array(ids, dtype=np.int32)


def _role_pairs(source: Tokenizer, other: Tokenizer) -> list[tuple[int, int]]:
    """Pairs of special ids: BOS and padding by role, any end with the first; those of the same name (``<|im_end|>``).

    Names come last, so that they win over roles, and an end that has a name in both is the first only if all have. A
    token of ordinary text keeps to its bytes, although it has a role.
    """
    mine, theirs = source.roles, other.roles
    names = {index: name for name, index in source.vocabulary.items() if index in source.specials - {source.unknown}}
    named = {
        index: other.vocabulary[name]
        for index, name in names.items()
        if other.vocabulary.get(name) in other.specials - {other.unknown}
    }
    ends = sorted((end for end in theirs.eos if not other.is_text(end)), key=lambda end: end in named.values())
    pairs = [(mine.pad, theirs.pad), (mine.bos, theirs.bos), *((end, first) for end in mine.eos for first in ends[:1])]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    return [(a, b) for a, b in known if not (source.is_text(a) or other.is_text(b))] + list(named.items())
