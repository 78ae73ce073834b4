"""The tasks of order 1: the text of a part becomes words or tokens, and these become symbols.

Both are keys first, as n-grams are: the key of a token is its id + 1, that of a word a hash of its text. `ngrams`
merges the keys of all parts. What survives gets its symbol, for which the texts of words are needed. No n-gram reaches
over a break, which is between runs of words, between documents, and where a special token is. A word or token below the
minimum count becomes a break too, since no n-gram with it can reach the minimum.

    encode_words, encode_tokens    part -> its distinct keys with counts, and which of them is at each place
    number_words, number_tokens    -> symbols and counts of order 1, and the vocabulary of words

Files, P a part, and those of `ngrams`:

    words-P.arrow   words of a part, by the number of their key
    first.rows      row in order 1 of each key that survived the merge, by its row there; -1 at the end
    first.symbols   symbol of each row of order 1; the break at the end
    first.counts    count of each row of order 1
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tokenizers
from numpy.typing import NDArray

from spectool import SpectoolError, TokenizerError
from spectool.artifacts.atomic import atomic_file
from spectool.artifacts.columns import as_numpy, read_columns, write_columns
from spectool.artifacts.resumable import TaskResult, load, save
from spectool.build.corpus_reading import in_parts
from spectool.build.counting.ngrams import merged, rows_of_keys, save_keys
from spectool.corpora import word_runs
from spectool.tokenization.tokenizer import FIX_TOKENIZER

BREAK = 0
"""The symbol that no n-gram contains."""

_BATCH_CHARACTERS = 1 << 18  # encoded at once: the tokenizer's own results take some 100 bytes a token


def encode_words(work: Path, part: int, texts: Sequence[bytes], orders: int) -> TaskResult:
    """Split the documents of a part into words."""
    number: defaultdict[str, int] = defaultdict(count(1).__next__)
    runs = (run for text in texts for run in word_runs(text.decode()))
    seen = np.fromiter(chain.from_iterable([*map(number.__getitem__, run), BREAK] for run in runs), dtype=np.int32)
    uses = np.bincount(seen, minlength=len(number) + 1)[1:]
    keys = _word_keys(number)
    by_key = np.argsort(keys)
    _write_words(work, f"words-{part}", pa.array(list(number), pa.large_string()).take(pa.array(by_key)))
    key_of = np.full(len(keys) + 1, -1, dtype=np.int32)
    key_of[by_key + 1] = np.arange(len(keys))
    figures = save_keys(work, 1, part, keys[by_key], uses[by_key], key_of[seen])
    return {**figures, "windows": windows(seen, orders)}


def encode_tokens(work: Path, part: int, texts: Sequence[bytes], orders: int, name: str) -> TaskResult:
    """Encode the documents of a part, each by itself, with ``tokenizer.json`` and ``token_symbols.npy``.

    Raises:
        TokenizerError: The tokenizer, whose name is ``name``, stops at a text.
    """
    backend = _backend(str(work / "tokenizer.json"))
    symbol_of = load(work, "token_symbols")
    pieces = []
    for batch in in_parts(map(bytes.decode, texts), len, _BATCH_CHARACTERS):
        try:
            encodings = backend.encode_batch_fast(batch, add_special_tokens=False)
        except Exception as error:  # the library raises nothing narrower
            raise TokenizerError(f"{name}: cannot encode a text ({error}). {FIX_TOKENIZER}") from error
        ids = chain.from_iterable([*encoding.ids, len(symbol_of) - 1] for encoding in encodings)
        pieces.append(symbol_of[np.fromiter(ids, dtype=np.int32)])
    symbols = np.concatenate(pieces)
    uses = np.bincount(symbols, minlength=len(symbol_of))
    uses[BREAK] = 0
    keys = np.flatnonzero(uses)
    key_of = np.full(len(uses), -1, dtype=np.int32)
    key_of[keys] = np.arange(len(keys))
    figures = save_keys(work, 1, part, keys, uses[keys], key_of[symbols])
    return {**figures, "windows": windows(symbols, orders)}


def token_symbols(size: int, specials: frozenset[int]) -> NDArray[np.int32]:
    """The symbol of every token id: a break for special ones, and for the id ``size``, the end of a document."""
    symbol_of = np.arange(1, size + 2, dtype=np.int32)
    symbol_of[[*specials, size]] = BREAK
    return symbol_of


def windows(symbols: NDArray[np.int32], orders: int) -> list[int]:
    """How many windows of each length hold no break; the last symbol is one."""
    lengths = np.diff(np.flatnonzero(symbols == BREAK), prepend=-1) - 1
    return [int(np.maximum(lengths - shorter, 0).sum()) for shorter in range(orders)]


def number_tokens(work: Path, parts: int, buckets: int) -> TaskResult:
    """Take the keys that survived for symbols: they are in the order of their ids."""
    keys, counts = merged(work, 1, buckets)
    return _save_first_order(work, np.arange(len(keys)), keys, counts)


def number_words(work: Path, parts: int, buckets: int) -> TaskResult:
    """Number the words that survived by falling count, then by text, and write the vocabulary.

    They are all in memory here: some 50 bytes for each.

    The texts of a word from all parts are compared, so no two words of one hash are counted together. (Of two words
    that stay below the minimum together, only the number of different words would not know.)

    Raises:
        SpectoolError: Two different words have the same hash.
    """
    _, counts = merged(work, 1, buckets)
    known = np.zeros(len(counts), dtype=np.bool_)
    rows, texts = [np.zeros(0, dtype=np.int32)], [pa.array([], pa.large_string())]
    for part in range(parts):
        row = rows_of_keys(work, 1, part, buckets)
        new = np.flatnonzero((row >= 0) & ~known[row]) if len(known) else np.zeros(0, dtype=np.int64)
        known[row[new]] = True
        rows.append(row[new])
        texts.append(_read_words(work, f"words-{part}").take(pa.array(new)))
    words = pa.concat_arrays(texts).take(pa.array(np.argsort(np.concatenate(rows))))
    for part in range(parts):
        row = rows_of_keys(work, 1, part, buckets)
        known_here = np.flatnonzero(row >= 0)
        _require_equal(words.take(pa.array(row[known_here])), _read_words(work, f"words-{part}").take(known_here))
    by_text = as_numpy(pc.sort_indices(words)).astype(np.int64)
    chosen = by_text[np.argsort(-counts[by_text], kind="stable")]
    _write_words(work, "vocabulary", words.take(pa.array(chosen)))
    place = np.empty(len(chosen), dtype=np.int64)
    place[chosen] = np.arange(len(chosen))
    return _save_first_order(work, place, np.arange(1, len(chosen) + 1), counts[chosen])


def read_vocabulary(work: Path) -> pa.Array:
    """The words by symbol, from symbol 1 on."""
    return _read_words(work, "vocabulary")


def _save_first_order(
    work: Path, rows: NDArray[np.int64], symbols: NDArray[np.int64], counts: NDArray[np.int64]
) -> TaskResult:
    save(work, "first.rows", np.append(rows, -1).astype(np.int32))
    save(work, "first.symbols", np.append(symbols, BREAK).astype(np.int32))
    save(work, "first.counts", counts)
    return {"kept": len(rows)}


def _word_keys(words: Any) -> NDArray[np.int64]:
    """A hash of 63 bits for each word.

    Raises:
        SpectoolError: Two of them have the same one.
    """
    digests = b"".join(blake2b(word.encode(), digest_size=8).digest() for word in words)
    keys = (np.frombuffer(digests, dtype="<u8") >> np.uint64(1)).astype(np.int64)
    if len(np.unique(keys)) < len(keys):
        raise _collision()
    return keys


def _require_equal(words: pa.Array, others: pa.Array) -> None:
    if not words.equals(others):
        raise _collision()


def _collision() -> SpectoolError:
    return SpectoolError(
        "two different words have the same hash of 63 bits, which is to be expected in one of a hundred thousand texts "
        "with ten million different words. Count the text in two halves, or without some of its documents"
    )


@lru_cache(maxsize=1)
def _backend(path: str) -> Any:
    return tokenizers.Tokenizer.from_file(path)


def _write_words(work: Path, name: str, words: pa.Array) -> None:
    with atomic_file(work / f"{name}.arrow") as partial:
        write_columns(partial, {"word": words})


def _read_words(work: Path, name: str) -> pa.Array:
    return read_columns(work / f"{name}.arrow", {"word": pa.large_string()})["word"]
