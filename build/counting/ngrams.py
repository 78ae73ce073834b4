"""The tasks that count n-grams, order by order.

Every n-gram is a key, one number: row of its first n-1 symbols in order n-1, times the number of symbols, plus its last
symbol; so sorted keys are sorted n-grams. (Order 1 has keys of its own, see `symbols`.) An n-gram can reach the minimum
count only if both its (n-1)-grams do, so each order looks only at the places where two survivors of the order before
begin next to each other.

    count_part      part   -> its distinct keys, sorted, with counts; and which of them begins at each place
    merge_bucket    bucket -> keys of all parts within a range, with counts, without those below the minimum
    collect                -> the columns of an order

Files, N an order, P a part and K a bucket:

    nN.found-P    distinct keys of a part, sorted            symbols-P    symbol at each place, from order 2 on
    nN.uses-P     how often each occurs there
    nN.places-P   number of the key at each place, or -1     nN.keys-K, nN.counts-K    what survived the merge
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.counts import Level
from spectool.artifacts.resumable import TaskResult, load, save
from spectool.build.counting.plan import SAMPLE_EVERY

Keys = NDArray[np.int64]


def count_part(work: Path, order: int, part: int, buckets: int, last: bool) -> TaskResult:
    """Count the n-grams of a part; ``buckets`` is the number of those of the order before."""
    # Row of the (n-1)-gram at each place. Keys and symbols end with what stands for -1: no key, a break.
    rows = np.append(rows_of_keys(work, order - 1, part, buckets), np.int32(-1))
    rows = rows[load(work, f"n{order - 1}.places-{part}")]
    by_row = load(work, "first.symbols", mapped=True)
    if order == 2:
        save(work, f"symbols-{part}", by_row[rows])
    size = max(0, len(rows) - 1)
    places = np.flatnonzero((rows[:size] >= 0) & (rows[1 : size + 1] >= 0))
    keys = rows[places].astype(np.int64)
    length = len(rows)
    del rows
    keys *= int(by_row.max()) + 1
    keys += load(work, f"symbols-{part}", mapped=True)[places + order - 1]
    by_key = np.argsort(keys)
    keys = keys[by_key]
    begins = np.diff(keys, prepend=-1) != 0
    found_at = None
    if not last:
        found_at = np.full(length, -1, dtype=np.int32)
        found_at[places[by_key]] = np.cumsum(begins, dtype=np.int32) - 1
    del places, by_key
    starts = np.flatnonzero(begins)
    return save_keys(work, order, part, keys[starts], np.diff(starts, append=len(keys)), found_at)


def save_keys(
    work: Path, order: int, part: int, keys: Keys, uses: NDArray[np.int64], places: NDArray[np.int32] | None
) -> TaskResult:
    """Write the sorted keys of a part, how often each occurs, and the number of the key at each place.

    Returns:
        How many keys there are, and a sample of them for `plan.bucket_cuts`.
    """
    save(work, f"n{order}.found-{part}", keys)
    save(work, f"n{order}.uses-{part}", uses.astype(np.uint32))
    if places is not None:
        save(work, f"n{order}.places-{part}", places)
    return {"records": len(keys), "sample": keys[::SAMPLE_EVERY].tolist()}


def merge_bucket(
    work: Path, order: int, bucket: int, low: int | None, high: int | None, parts: int, min_count: int
) -> TaskResult:
    """Add up the counts of the keys from ``low`` to before ``high``; None is an end that is open."""
    keys, uses = [], []
    for part in range(parts):
        found, times = (load(work, f"n{order}.{name}-{part}", mapped=True) for name in ("found", "uses"))
        start = 0 if low is None else int(np.searchsorted(found, low))
        stop = len(found) if high is None else int(np.searchsorted(found, high))
        # Copied, so that not all files of a large corpus are open at once.
        keys.append(np.array(found[start:stop]))
        uses.append(np.array(times[start:stop]))
    return _merge(work, order, bucket, np.concatenate(keys), np.concatenate(uses), min_count)


def _merge(work: Path, order: int, bucket: int, keys: Keys, uses: NDArray[np.uint32], min_count: int) -> TaskResult:
    by_key = np.argsort(keys, kind="stable")  # a merge: the keys of every part are sorted
    keys = keys[by_key]
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    total = np.add.reduceat(uses[by_key], begins, dtype=np.int64) if len(begins) else np.zeros(0, dtype=np.int64)
    kept = total >= min_count
    save(work, f"n{order}.keys-{bucket}", keys[begins[kept]])
    save(work, f"n{order}.counts-{bucket}", total[kept])
    return {"kept": int(kept.sum())}


def merged(work: Path, order: int, buckets: int) -> tuple[Keys, NDArray[np.int64]]:
    """All keys that survived a merge, with their counts."""
    keys, counts = ([load(work, f"n{order}.{name}-{k}") for k in range(buckets)] for name in ("keys", "counts"))
    return np.concatenate(keys), np.concatenate(counts)


def rows_of_keys(work: Path, order: int, part: int, buckets: int) -> NDArray[np.int32]:
    """For each key of a part its row among all that survived the merge, -1 where it did not."""
    found = load(work, f"n{order}.found-{part}")
    rows = np.full(len(found), -1, dtype=np.int32)
    before = 0
    for bucket in range(buckets):
        keys = load(work, f"n{order}.keys-{bucket}", mapped=True)
        if len(keys):
            start, stop = np.searchsorted(found, [keys[0], keys[-1] + 1])
            row = np.searchsorted(keys, found[start:stop])
            survived = keys[row] == found[start:stop]
            rows[start:stop][survived] = before + row[survived]
        before += len(keys)
    return rows


def collect(work: Path, order: int, sizes: list[int]) -> Level:
    """The columns of an order, as mapped files that need no memory of their own; ``sizes`` are those of its buckets."""
    if order == 1:
        symbols = load(work, "first.symbols", mapped=True)[:-1]
        return Level(np.zeros_like(symbols), symbols, load(work, "first.counts", mapped=True))
    base = int(load(work, "first.symbols", mapped=True).max()) + 1
    bounds = np.cumsum([0, *sizes]).tolist()
    prefix, symbol = (_column(work / f"n{order}.{name}", np.int32, bounds[-1]) for name in ("prefix", "symbol"))
    count = _column(work / f"n{order}.count", np.int64, bounds[-1])
    for bucket, (start, stop) in enumerate(pairwise(bounds)):
        prefix[start:stop], symbol[start:stop] = np.divmod(load(work, f"n{order}.keys-{bucket}"), base)
        count[start:stop] = load(work, f"n{order}.counts-{bucket}")
    return Level(prefix, symbol, count)


def _column(path: Path, kind: type, rows: int) -> NDArray[Any]:
    # A file of no bytes cannot be mapped.
    return np.memmap(path, dtype=kind, mode="w+", shape=max(1, rows))[:rows]
