"""The merge table of a BPE tokenizer: how each token comes about when BPE meets its own bytes."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from spectool.tokenization.incremental.ids_or_text import reasons_for_text
from spectool.tokenization.incremental.merges import SYMBOL, UNREACHABLE, MergeTable
from spectool.tokenization.token_bytes import byte_symbols
from spectool.tokenization.tokenizer import Tokenizer

_Merges = dict[tuple[int, int], tuple[int, int]]  # two parts -> rank, token that they make


def joins_by_merges(tokenizer: Tokenizer) -> bool:
    """Whether the merge-site lemma can be used: the tokenizer is BPE, and all of its steps can be followed."""
    return not reasons_for_text(tokenizer)


def merge_table(tokenizer: Tokenizer) -> MergeTable:
    """The merge table of a BPE tokenizer.

    Ids need not follow ranks, and several merges may make one token. What counts is the merge that BPE really does last
    when it meets the token's own bytes. Tokens that it does not give back (added tokens, tokens that only
    `ignore_merges` reaches) are marked `UNREACHABLE`; special tokens too, unless merging ends in them.

    Merges are gone through by rank. At the turn of a pair both parts may have been made by lower ranks. Then the
    merge-site lemma decides whether the pair is still there to be merged. Tokens with a part that comes later are
    merged from their characters.
    """
    vocabulary: dict[str, int] = tokenizer.model["vocab"]
    merges = _merges_by_rank(tokenizer)
    left, right, rank = ([missing] * tokenizer.size for missing in (UNREACHABLE, UNREACHABLE, -1))
    # Signs that the model never sees are no symbols: a plain space where another sign is written for it.
    without_bytes = {token for token in tokenizer.specials if not tokenizer.spelled[token]}
    seen = byte_symbols() if tokenizer.kind == "byte-level BPE" else None
    spaces = {" "} - {tokenizer.space_sign}
    for name, token in vocabulary.items():
        symbol = len(name) == 1 and name not in spaces if seen is None else name in seen
        if token not in without_bytes and (symbol or token in tokenizer.byte_tokens):
            left[token] = right[token] = SYMBOL
    unordered: set[int] = set()
    for (first, second), (place, token) in merges.items():
        if left[token] != UNREACHABLE or token in without_bytes:
            continue
        if UNREACHABLE in (left[first], left[second]):
            unordered.add(token)
        elif not _merged_before(place, first, second, left, right, rank, merges):
            left[token], right[token], rank[token] = first, second, place
            unordered.discard(token)
    names = {token: name for name, token in vocabulary.items()}
    for token in unordered:
        last = last_merge([vocabulary.get(char, -1) for char in names[token]], merges)
        if last is not None and merges[last][1] == token:
            left[token], right[token], rank[token] = *last, merges[last][0]
    token_bytes = tokenizer.token_bytes
    for token, (first, second) in enumerate(zip(left, right, strict=True)):
        # A part may be a special token, which has no bytes, or spell a byte (``<0x0A>``) that the whole spells out.
        if first >= 0 and (
            not (token_bytes[first] and token_bytes[second])
            or token_bytes[first] + token_bytes[second] != token_bytes[token]
        ):
            left[token], right[token], rank[token] = UNREACHABLE, UNREACHABLE, -1
    pairs = np.array([first << 32 | second for first, second in merges], np.int64)
    made = np.array(list(merges.values()), np.int32).reshape(-1, 2)
    order = np.argsort(pairs)
    lefts, rights, ranks = (np.array(column, np.int32) for column in (left, right, rank))
    return MergeTable(lefts, rights, ranks, pairs[order], made[order, 0], made[order, 1])


def _merges_by_rank(tokenizer: Tokenizer) -> _Merges:
    model = tokenizer.model
    vocabulary: dict[str, int] = model["vocab"]
    merges: _Merges = {}
    for place, merge in enumerate(model["merges"]):
        first, second = merge if isinstance(merge, list) else merge.split(" ", 1)
        pair = vocabulary[first], vocabulary[second]
        merges.pop(pair, None)  # of a merge listed twice, the later rank counts
        merges[pair] = place, vocabulary[first + second]
    return merges


def _merged_before(
    place: int, first: int, second: int, left: Sequence[int], right: Sequence[int], rank: Sequence[int], merges: _Merges
) -> bool:
    """Whether some pair of the spines of two tokens merges before the two would, at rank ``place``."""
    x, x_consumed = first, place
    while x >= 0:
        y, y_consumed = second, place
        while y >= 0:
            merge = merges.get((x, y))
            if merge is not None and merge[0] < x_consumed and merge[0] <= y_consumed:
                return True
            y, y_consumed = left[y], rank[y]
        x, x_consumed = right[x], rank[x]
    return False


def last_merge(symbols: Sequence[int], merges: _Merges) -> tuple[int, int] | None:
    """The last merge of symbols that BPE makes a single token of; None if it does not."""
    ids, last = list(symbols), None
    while len(ids) > 1:
        known = [(merges[pair][0], at, pair) for at, pair in enumerate(pairwise(ids)) if pair in merges]
        if not known:
            return None
        _, at, last = min(known)
        ids[at : at + 2] = [merges[last][1]]
    return last
