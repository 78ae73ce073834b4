"""Tasks of a count, first part: from blocks of text to symbols, and the counts of single symbols.

    words    encode_words    block  -> local symbols, and the block's words with their counts
             merge_words     bucket -> words of all blocks with their counts, those below the minimum left out
             number_words           -> the vocabulary: symbols by falling count, then by text
             place_words     block  -> symbols
    tokens   encode_tokens   block  -> symbols, and how often each occurs
             merge_tokens           -> tokens with their counts, those below the minimum left out

Symbol 0 is a break: between runs of words, between documents, and in the place of a special token. A
word below the minimum becomes one too, since no n-gram with it can reach the minimum.

Files, B a block and K a bucket: ``text-B``, ``local-B``, ``words-B``, ``uses-B``, ``symbols-B``, ``words.kept-K``, and
those of `buckets`. Further ``n1.roots``: row in order 1 of every symbol, -1 where it has none.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tokenizers
from numpy.typing import NDArray

from spectool import TokenizerError
from spectool.artifacts.atomic import renaming
from spectool.artifacts.columns import as_numpy, read_columns, write_columns
from spectool.artifacts.resumable import Figures, load, read_json, save, write_json
from spectool.build.counting.buckets import cuts, figures_of, records_in, rows_of, save_rows
from spectool.build.counting.plan import in_blocks
from spectool.corpora import word_runs
from spectool.tokenization.tokenizer import MEND

BREAK = 0
WORDS_EVERY = 64
"""One word in so many goes into the sample that buckets are cut by."""

_WORDS = {"word": pa.large_string(), "count": pa.int64()}
_BATCH_CHARACTERS = 1 << 18  # encoded at once: the tokenizer's own results take some 100 bytes a token


def write_text(work: Path, block: int, texts: Sequence[bytes]) -> None:
    """Write the documents of a block for its encoder; clean text holds no NUL."""
    with renaming(work / f"text-{block}") as partial:
        partial.write_bytes(b"\0".join(texts))


def encode_words(work: Path, block: int, orders: int, language: str | None) -> Figures:
    """Split a block into words and number them within the block, by their text."""
    ids: defaultdict[str, int] = defaultdict(count(1).__next__)
    runs = (run for text in _texts(work, block) for run in word_runs(text, language))
    seen = np.fromiter(chain.from_iterable([*map(ids.__getitem__, run), BREAK] for run in runs), dtype=np.int32)
    words = sorted(ids)
    number = np.zeros(len(words) + 1, dtype=np.int32)
    number[[ids[word] for word in words]] = np.arange(1, len(words) + 1)
    local = number[seen]
    counts = np.bincount(local, minlength=len(words) + 1)[1:]
    save(work, f"local-{block}", local)
    _write_words(work, f"words-{block}", pa.array(words, pa.large_string()), counts)
    return {"symbols": len(local), "records": len(words), "windows": windows(local, orders)}


def cut_words(work: Path, blocks: int, buckets: int) -> Figures:
    """Choose the first word of every bucket but the first, from samples of all blocks."""
    samples: list[str] = []
    for block in range(blocks):
        words, _ = read_words(work, f"words-{block}")
        samples += words.take(pa.array(range(0, len(words), WORDS_EVERY), pa.int64())).to_pylist()
    samples.sort()
    write_json(work / "words.cuts.json", [samples[at] for at in cuts(len(samples), buckets)])
    return {"samples": len(samples)}


def merge_words(work: Path, bucket: int, blocks: int, min_count: int) -> Figures:
    """Add up the counts of a bucket's words, and write for every block which of its words are kept."""
    sources = (read_words(work, f"words-{block}") for block in range(blocks))
    pieces, counts, starts = records_in(sources, read_json(work / "words.cuts.json"), bucket, _place)
    encoded = pa.concat_arrays(pieces).dictionary_encode()
    by_text = as_numpy(pc.sort_indices(encoded.dictionary)).astype(np.int64)
    word_of = np.argsort(by_text)[as_numpy(encoded.indices)]
    total = np.zeros(len(by_text), dtype=np.int64)
    np.add.at(total, word_of, counts)
    kept = total >= min_count
    save_rows(work, "words", bucket, kept, word_of, starts)
    _write_words(work, f"words.kept-{bucket}", encoded.dictionary.take(pa.array(by_text[kept])), total[kept])
    return figures_of(total, kept)


def number_words(work: Path, buckets: int) -> Figures:
    """Write the vocabulary, and the counts of order 1.

    The kept words of all buckets are in memory here: some 50 bytes for each.
    """
    parts = [read_words(work, f"words.kept-{bucket}") for bucket in range(buckets)]
    words = pa.concat_arrays([part for part, _ in parts])
    counts = np.concatenate([uses for _, uses in parts])
    chosen = np.argsort(-counts, kind="stable")  # the words are in the order of their texts
    symbols = np.arange(1, len(words) + 1)
    symbol = np.full(len(words) + 1, BREAK, dtype=np.int32)  # the last is that of row -1
    symbol[chosen] = symbols
    save(work, "words.symbols", symbol)
    save(work, "words.bases", np.cumsum([0, *(len(part) for part, _ in parts)]))
    _write_words(work, "vocabulary", words.take(pa.array(chosen)), counts[chosen])
    _save_first_order(work, len(symbol), symbols, counts[chosen])
    return {"kept": len(words)}


def place_words(work: Path, block: int) -> Figures:
    """Put the vocabulary's symbols in the place of a block's own."""
    rows = np.append(-1, rows_of(work, "words", block))  # local symbol 0 is a break
    local = load(work, f"local-{block}")
    save(work, f"symbols-{block}", load(work, "words.symbols", mapped=True)[rows][local])
    return {"symbols": len(local)}


def encode_tokens(work: Path, block: int, orders: int, name: str) -> Figures:
    """Encode the documents of a block, each by itself, with ``tokenizer.json`` and ``token_symbols.npy``.

    Raises:
        TokenizerError: The tokenizer, whose name is ``name``, stops at a text.
    """
    backend = _backend(str(work / "tokenizer.json"))
    symbol_of = load(work, "token_symbols")
    pieces = []
    for texts in in_blocks(_texts(work, block), len, _BATCH_CHARACTERS):
        try:
            encodings = backend.encode_batch_fast(texts, add_special_tokens=False)
        except Exception as error:  # the library raises nothing narrower
            raise TokenizerError(f"{name}: cannot encode a text ({error}). {MEND}") from error
        ids = chain.from_iterable([*encoding.ids, len(symbol_of) - 1] for encoding in encodings)
        pieces.append(symbol_of[np.fromiter(ids, dtype=np.int32)])
    symbols = np.concatenate(pieces)
    save(work, f"symbols-{block}", symbols)
    save(work, f"uses-{block}", np.bincount(symbols, minlength=len(symbol_of)))
    return {"symbols": len(symbols), "windows": windows(symbols, orders)}


def merge_tokens(work: Path, blocks: int, min_count: int) -> Figures:
    """Add up the counts of single tokens."""
    total = load(work, "uses-0")
    for block in range(1, blocks):
        total += load(work, f"uses-{block}", mapped=True)
    total[BREAK] = 0
    kept = np.flatnonzero(total >= min_count)
    _save_first_order(work, len(total), kept, total[kept])
    found = total[total > 0]
    return figures_of(found, found >= min_count)


def _save_first_order(work: Path, symbols: int, kept: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
    roots = np.full(symbols, -1, dtype=np.int32)
    roots[kept] = np.arange(len(kept))
    save(work, "n1.roots", roots)
    save(work, "n1.bases", np.array([0, len(kept)]))
    save(work, "n1.keys-0", kept)
    save(work, "n1.counts-0", counts)


def token_symbols(size: int, specials: frozenset[int]) -> NDArray[np.int32]:
    """Return the symbol of every token id, and a break for special ones and for the end of a document."""
    symbol_of = np.arange(1, size + 2, dtype=np.int32)
    symbol_of[[*specials, size]] = BREAK
    return symbol_of


def windows(symbols: NDArray[np.int32], orders: int) -> list[int]:
    """Return how many windows of each length hold no break; the last symbol is one."""
    lengths = np.diff(np.flatnonzero(symbols == BREAK), prepend=-1) - 1
    return [int(np.maximum(lengths - shorter, 0).sum()) for shorter in range(orders)]


def _texts(work: Path, block: int) -> list[str]:
    return (work / f"text-{block}").read_bytes().decode().split("\0")


@lru_cache(maxsize=1)
def _backend(path: str) -> Any:
    return tokenizers.Tokenizer.from_file(path)


def _write_words(work: Path, name: str, words: pa.Array, counts: NDArray[np.int64]) -> None:
    with renaming(work / f"{name}.arrow") as partial:
        write_columns(partial, {"word": words, "count": pa.array(counts)})


def read_words(work: Path, name: str) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return sorted words, or the vocabulary by symbol, with their counts."""
    columns = read_columns(work / f"{name}.arrow", _WORDS)
    return columns["word"], as_numpy(columns["count"])


def _place(words: pa.Array, word: str) -> int:
    """Return where ``word`` is, or would be, among sorted words."""
    return bisect_left(range(len(words)), word, key=lambda at: words[at].as_py())
