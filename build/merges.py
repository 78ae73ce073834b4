"""The merge table of a BPE tokenizer: how each token comes about, found by merging its own bytes."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from spectool.artifacts.merges import SYMBOL, UNREACHABLE, MergeTable
from spectool.artifacts.surfaces import flatten
from spectool.artifacts.tokenizer import Tokenizer

_Merges = dict[tuple[int, int], tuple[int, int]]
_EMPTY = np.zeros(0, np.int32)
NO_MERGES = MergeTable(_EMPTY, _EMPTY, _EMPTY, np.zeros(0, np.int64), _EMPTY, _EMPTY)


def has_lemma(tokenizer: Tokenizer) -> bool:
    """Tell whether the merge-site lemma can be used.

    It holds for BPE without word-end marks, prefixes and dropout. It is not used where a
    pre-tokenizer goes on splitting after its byte-level step, since that cuts characters apart.
    """
    model = tokenizer.spec["model"]
    marks = model.get("continuing_subword_prefix"), model.get("end_of_word_suffix"), model.get("dropout")
    steps = [step["type"] for step in flatten(tokenizer.spec["pre_tokenizer"], "pretokenizers")]
    return bool(model["type"] == "BPE" and not any(marks) and "ByteLevel" not in steps[:-1])


def merge_table(tokenizer: Tokenizer) -> MergeTable:
    """Derive the merge table.

    Ids need not follow ranks, and several merges may make one token: what counts is the merge
    that BPE really does last when it meets the token's own bytes. Tokens that it does not give
    back (added tokens, tokens that only `ignore_merges` reaches) are marked `UNREACHABLE`;
    special tokens too.
    """
    model = tokenizer.spec["model"]
    vocabulary: dict[str, int] = model["vocab"]
    merges: _Merges = {}
    for place, merge in enumerate(model["merges"]):
        first, second = merge if isinstance(merge, list) else merge.split(" ", 1)
        merges[vocabulary[first], vocabulary[second]] = place, vocabulary[first + second]
    left = np.full(tokenizer.size, UNREACHABLE, np.int32)
    right, rank = left.copy(), np.full(tokenizer.size, -1, np.int32)
    for token, index in vocabulary.items():
        if index in tokenizer.specials:
            continue
        if len(token) == 1 or index in tokenizer.byte_tokens:
            left[index] = right[index] = SYMBOL
            continue
        symbols = [vocabulary.get(char, -1) for char in token]
        last = _last_merge(symbols, merges)
        if last is not None and merges[last][1] == index:
            left[index], right[index] = last
            rank[index] = merges[last][0]
    keys = np.array([first << 32 | second for first, second in merges], np.int64)
    values = np.array(list(merges.values()), np.int32).reshape(-1, 2)
    order = np.argsort(keys)
    return MergeTable(left, right, rank, keys[order], values[order, 0], values[order, 1])


def _last_merge(symbols: Sequence[int], merges: _Merges) -> tuple[int, int] | None:
    """Merge symbols by BPE; return the merge that left a single token, or None if none did."""
    ids = list(symbols)
    while len(ids) > 1:
        pairs = list(pairwise(ids))
        known = [(merges[pair][0], place) for place, pair in enumerate(pairs) if pair in merges]
        if not known:
            return None
        _, at = min(known)
        last = pairs[at]
        ids[at : at + 2] = [merges[last][1]]
    return last
