"""Tasks of a count, second part: n-grams of order 2 and more, order by order.

An n-gram can reach the minimum count only if both its (n-1)-grams do. So every order looks only at the places where two
survivors of the order before begin side by side. Its key is one number: row of its first n-1 symbols x number of
symbols + last symbol; sorted keys are sorted n-grams.

    count_shard    shard  -> its distinct keys, sorted, with counts; and which of them begins at each place
    merge_bucket   bucket -> keys of all shards within a range, with counts, those below the minimum left out;
                             and for every shard the row of each of its keys, -1 where it did not survive
    collect        -> the columns of an order

Files, N an order, S a shard and K a bucket: ``nN.found-S``, ``nN.uses-S``, ``nN.sample-S``, ``nN.places-S``,
``nN.cuts``, ``nN.keys-K``, ``nN.counts-K``, and those of `buckets`.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.counts import Level
from spectool.artifacts.resumable import Figures, load, save
from spectool.build.counting.buckets import cuts, figures_of, records_in, rows_of, save_rows
from spectool.build.counting.plan import SAMPLE_EVERY


def count_shard(work: Path, order: int, shard: int, first: int, stop: int, last: bool) -> Figures:
    """Count the n-grams of one shard, the blocks from ``first`` to before ``stop``."""
    symbols = np.concatenate([load(work, f"symbols-{block}") for block in range(first, stop)])
    rows = _rows(work, order - 1, shard, symbols)
    length = len(symbols)
    size = max(0, length - order + 1)
    places = np.flatnonzero((rows[:size] >= 0) & (rows[1 : size + 1] >= 0))
    keys = rows[places].astype(np.int64)
    keys *= len(load(work, "n1.roots", mapped=True))
    keys += symbols[places + order - 1]
    del rows, symbols
    by_key = np.argsort(keys)
    keys = keys[by_key]
    begins = np.diff(keys, prepend=-1) != 0
    if not last:
        found_at = np.full(length, -1, dtype=np.int32)
        found_at[places[by_key]] = np.cumsum(begins, dtype=np.int32) - 1
        save(work, f"n{order}.places-{shard}", found_at)
        del found_at
    del places, by_key
    starts = np.flatnonzero(begins)
    keys, uses = keys[starts], np.diff(starts, append=len(keys)).astype(np.uint32)
    save(work, f"n{order}.found-{shard}", keys)
    save(work, f"n{order}.uses-{shard}", uses)
    save(work, f"n{order}.sample-{shard}", keys[::SAMPLE_EVERY])
    return {"records": len(keys)}


def cut_keys(work: Path, order: int, shards: int, buckets: int) -> Figures:
    """Choose the first key of every bucket but the first, from samples of all shards."""
    samples = np.sort(np.concatenate([load(work, f"n{order}.sample-{shard}") for shard in range(shards)]))
    save(work, f"n{order}.cuts", samples[cuts(len(samples), buckets)])
    return {"samples": len(samples)}


def merge_bucket(work: Path, order: int, bucket: int, shards: int, min_count: int, last: bool) -> Figures:
    """Add up the counts of a bucket's keys, and write for every shard which of its keys survive."""
    columns = (
        [load(work, f"n{order}.{name}-{shard}", mapped=True) for name in ("found", "uses")] for shard in range(shards)
    )
    pieces, uses, starts = records_in(columns, load(work, f"n{order}.cuts").tolist(), bucket, np.searchsorted)
    keys = np.concatenate(pieces)
    by_key = np.argsort(keys, kind="stable")  # a merge: every shard's keys are sorted
    keys = keys[by_key]
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    total = np.add.reduceat(uses[by_key], begins, dtype=np.int64) if len(begins) else np.zeros(0, dtype=np.int64)
    kept = total >= min_count
    if not last:
        key_of = np.empty(len(keys), dtype=np.int32)
        key_of[by_key] = np.repeat(np.arange(len(total), dtype=np.int32), np.diff(begins, append=len(keys)))
        save_rows(work, f"n{order}", bucket, kept, key_of, starts)
    save(work, f"n{order}.keys-{bucket}", keys[begins[kept]])
    save(work, f"n{order}.counts-{bucket}", total[kept])
    return figures_of(total, kept)


def collect(work: Path, order: int) -> Level:
    """Return the columns of an order as mapped files, so that they need no memory of their own."""
    base = len(load(work, "n1.roots", mapped=True))
    bases = load(work, f"n{order}.bases").tolist()
    prefix, symbol = (_column(work / f"n{order}.{name}", np.int32, bases[-1]) for name in ("prefix", "symbol"))
    count = _column(work / f"n{order}.count", np.int64, bases[-1])
    for bucket, (start, stop) in enumerate(pairwise(bases)):
        prefix[start:stop], symbol[start:stop] = np.divmod(load(work, f"n{order}.keys-{bucket}"), base)
        count[start:stop] = load(work, f"n{order}.counts-{bucket}")
    return Level(prefix, symbol, count)


def _rows(work: Path, order: int, shard: int, symbols: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the row of the n-gram of this order that begins at each place of a shard, -1 where none survived."""
    rows, places = load(work, "n1.roots"), symbols
    if order > 1:
        # The last is for places where no n-gram begins, which are -1 too.
        rows = np.append(rows_of(work, f"n{order}", shard), np.int32(-1))
        places = load(work, f"n{order}.places-{shard}")
    found: NDArray[np.int32] = rows[places]
    return found


def _column(path: Path, kind: type, rows: int) -> NDArray[Any]:
    # A file of no bytes cannot be mapped.
    return np.memmap(path, dtype=kind, mode="w+", shape=max(1, rows))[:rows]
