"""The merge table of a BPE tokenizer: how each token comes about when BPE meets its own bytes."""

import numpy as np

from spectool.tokenization.incremental.merges import SYMBOL, UNREACHABLE, Merges, MergeTable
from spectool.tokenization.running_text import RunningText
from spectool.tokenization.token_bytes import byte_symbols
from spectool.tokenization.tokenizer import Tokenizer


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
    table = merge_list(tokenizer)
    merges = Merges(table, {}, {})  # sees each merge as soon as it is written to the table
    left, right, rank = table.left.data, table.right.data, table.rank.data

    def write(place: int, token: int) -> None:
        pair = int(table.pairs[place])
        left[token], right[token], rank[token] = pair >> 32, pair & 0xFFFFFFFF, int(table.ranks[place])

    # Signs that the model never sees are no symbols: a plain space where another sign is written for it.
    spelled = RunningText(tokenizer).token_bytes
    without_bytes = {token for token in tokenizer.specials if not spelled[token]}
    seen = byte_symbols() if tokenizer.kind == "byte-level BPE" else None
    spaces = {" "} - {tokenizer.space_sign}
    for name, token in vocabulary.items():
        symbol = len(name) == 1 and name not in spaces if seen is None else name in seen
        if token not in without_bytes and (symbol or token in tokenizer.byte_tokens):
            left[token] = right[token] = SYMBOL
    unordered: set[int] = set()
    for place in np.argsort(table.ranks).tolist():
        pair, token = int(table.pairs[place]), int(table.results[place])
        first, second = pair >> 32, pair & 0xFFFFFFFF
        if left[token] != UNREACHABLE or token in without_bytes:
            continue
        if UNREACHABLE in (left[first], left[second]):
            unordered.add(token)
        elif not merges.would_merge(first, second, int(table.ranks[place])):
            write(place, token)
            unordered.discard(token)
    names = {token: name for name, token in vocabulary.items()}
    for token in unordered:
        made: list[int] = []
        if merges.merge([vocabulary.get(char, -1) for char in names[token]], made) == [token] and made:
            write(made[-1], token)
    token_bytes = tokenizer.token_bytes
    for token, (first, second) in enumerate(zip(left, right, strict=True)):
        # A part may be a special token, which has no bytes, or spell a byte (``<0x0A>``) that the whole spells out.
        if first >= 0 and (
            not (token_bytes[first] and token_bytes[second])
            or token_bytes[first] + token_bytes[second] != token_bytes[token]
        ):
            left[token], right[token], rank[token] = UNREACHABLE, UNREACHABLE, -1
    return table


def merge_list(tokenizer: Tokenizer) -> MergeTable:
    """A table with all merges of a BPE tokenizer, in which no token has a last merge yet."""
    model = tokenizer.model
    vocabulary: dict[str, int] = model["vocab"]
    merges: dict[int, tuple[int, int]] = {}
    for rank, merge in enumerate(model["merges"]):
        first, second = merge if isinstance(merge, list) else merge.split(" ", 1)
        # Of a merge listed twice, the later rank counts.
        merges[vocabulary[first] << 32 | vocabulary[second]] = rank, vocabulary[first + second]
    pairs, made = np.array(list(merges), np.int64), np.array(list(merges.values()), np.int32).reshape(-1, 2)
    order = np.argsort(pairs)
    left, right = (np.full(tokenizer.size, UNREACHABLE, np.int32) for _ in range(2))
    rank_of_last = np.full(tokenizer.size, -1, np.int32)
    return MergeTable(left, right, rank_of_last, pairs[order], made[order, 0], made[order, 1])
