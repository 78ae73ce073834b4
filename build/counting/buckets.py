"""Merging what many sources have found, bucket by bucket: the words of blocks, or the n-grams of shards.

Every source has sorted keys with counts, its records. A bucket is a range of keys. STEM is ``words`` or ``nN``, K a
bucket:

    STEM.rows-K     row in its bucket of the key of each record, -1 where the key did not survive; source after source
    STEM.starts-K   where the records of each source begin, and the number of records
    STEM.bases      first row of each bucket, and the number of rows
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.counts import COUNTS_OF_COUNTS
from spectool.artifacts.resumable import Figures, load, save


def cuts(samples: int, buckets: int) -> NDArray[np.int64]:
    """Return where buckets begin among sorted samples, ``[buckets - 1]``: at equal numbers of them."""
    return np.arange(1, buckets) * samples // buckets


def records_in(
    sources: Iterable[Sequence[Any]], first: Sequence[Any], bucket: int, place: Callable[[Any, Any], Any]
) -> tuple[list[Any], NDArray[Any], NDArray[np.int64]]:
    """Return the keys of a bucket by source, the counts of all, and where the records of each source begin.

    ``first`` has the first key of every bucket but the first, and ``place`` finds it among the keys of a source.
    """
    keys, counts = [], []
    for found, uses in sources:
        start = int(place(found, first[bucket - 1])) if bucket else 0
        stop = int(place(found, first[bucket])) if bucket < len(first) else len(found)
        keys.append(found[start:stop])
        counts.append(uses[start:stop])
    return keys, np.concatenate(counts), np.cumsum([0, *map(len, keys)])


def save_rows(
    work: Path, stem: str, bucket: int, kept: NDArray[np.bool_], key_of: NDArray[Any], starts: NDArray[np.int64]
) -> None:
    """Write which ``[keys]`` of a bucket survive, by its records: ``key_of`` has the number of the key of each."""
    row = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
    save(work, f"{stem}.rows-{bucket}", row[key_of])
    save(work, f"{stem}.starts-{bucket}", starts)


def rows_of(work: Path, stem: str, source: int) -> NDArray[np.int32]:
    """Return the row of each record of a source among the keys of all buckets, -1 where its key did not survive."""
    found = []
    for bucket, (base, _) in enumerate(pairwise(load(work, f"{stem}.bases").tolist())):
        start, stop = load(work, f"{stem}.starts-{bucket}", mapped=True)[source : source + 2]
        rows = np.array(load(work, f"{stem}.rows-{bucket}", mapped=True)[start:stop])
        rows[rows >= 0] += base
        found.append(rows)
    return np.concatenate(found)


def figures_of(total: NDArray[np.int64], kept: NDArray[np.bool_]) -> Figures:
    """Return what the manifest says of some keys: how often they occur, and which are kept."""
    return {
        "distinct": len(total),
        "kept": int(kept.sum()),
        "occurrences": int(total[kept].sum()),
        "counts_of_counts": [int((total == times).sum()) for times in range(1, COUNTS_OF_COUNTS + 1)],
    }
