"""The tasks of order 1: the text of a part becomes tokens, and these become symbols.

Both are keys first, as n-grams are: the key of a token is its id + 1. `ngrams` merges the keys of all parts. What
survives keeps its key as its symbol. No n-gram reaches over a break, which is between documents and where a special
token is. A token below the minimum count becomes a break too, since no n-gram with it can reach the minimum.

    encode_tokens    part -> its distinct keys with counts, and which of them is at each place
    number_tokens    -> symbols and counts of order 1

Files, with those of `ngrams`:

    first.symbols   symbol of each row of order 1; the break at the end
    first.counts    count of each row of order 1
"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.resumable import TaskResult, save
from spectool.build.corpus_reading import in_parts
from spectool.build.counting.ngrams import merged, save_keys
from spectool.tokenization.backend import encoded
from spectool.tokenization.tokenizer import Tokenizer

BREAK = 0
"""The symbol that no n-gram contains."""

_BATCH_CHARACTERS = 1 << 18  # encoded at once: the tokenizer's own results take some 100 bytes a token


def encode_tokens(
    work: Path, part: int, texts: Sequence[bytes], tokenizer: Tokenizer, symbol_of: NDArray[np.int32]
) -> TaskResult:
    """Encode the documents of a part, each by itself; ``symbol_of`` is from `token_symbols`.

    Raises:
        TokenizerError: The tokenizer stops at a text.
    """
    pieces = []
    for batch in in_parts(map(bytes.decode, texts), len, _BATCH_CHARACTERS):
        encodings = encoded(tokenizer.backend.encode_batch_fast, batch, tokenizer.name)
        ids = chain.from_iterable([*encoding.ids, len(symbol_of) - 1] for encoding in encodings)
        pieces.append(symbol_of[np.fromiter(ids, dtype=np.int32)])
    symbols = np.concatenate(pieces)
    uses = np.bincount(symbols, minlength=len(symbol_of))
    uses[BREAK] = 0
    keys = np.flatnonzero(uses)
    key_of = np.full(len(uses), -1, dtype=np.int32)
    key_of[keys] = np.arange(len(keys))
    figures = save_keys(work, 1, part, keys, uses[keys], key_of[symbols])
    return {**figures, "tokens": int(uses.sum())}


def token_symbols(size: int, specials: frozenset[int]) -> NDArray[np.int32]:
    """The symbol of every token id: a break for special ones, and for the id ``size``, the end of a document."""
    symbol_of = np.arange(1, size + 2, dtype=np.int32)
    symbol_of[[*specials, size]] = BREAK
    return symbol_of


def number_tokens(work: Path, buckets: int) -> TaskResult:
    """Take the keys that survived for symbols: they are in the order of their ids."""
    keys, counts = merged(work, 1, buckets)
    save(work, "first.symbols", np.append(keys, BREAK).astype(np.int32))
    save(work, "first.counts", counts)
    return {"kept": len(keys)}
