"""How a count is cut into pieces: from a limit of memory to sizes, and from samples to buckets."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from spectool import SpectoolError

Item = TypeVar("Item")
SAMPLE_EVERY = 1024
"""One key in so many goes into the sample that buckets are cut by."""

_PROCESS = 220 * 10**6  # an interpreter with numpy, Arrow and a tokenizer, bytes
_LEAST_SHARE = 64 * 10**6
_BYTES_PER_SYMBOL = 64  # at the peak of `count_ngrams.count_shard` and `merge_bucket`, when all n-grams differ
_BYTES_PER_TEXT_BYTE = 32  # at the peak of `count_symbols.encode_words`, when every word is another one
_LARGEST_BLOCK = 8 * 2**20  # smaller corpora keep all workers busy, too
_LARGEST_SHARD = 2**23  # larger ones take longer to sort than they save in merging
_WORTH_A_TASK = 2**20  # symbols or records; fewer are not spread over workers


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of the pieces; the counts do not depend on them."""

    workers: int  # tasks that run at the same time
    block_bytes: int  # text in a block, bytes of UTF-8; a document is never cut
    shard_symbols: int  # words or tokens in a shard; a block is never cut
    bucket_records: int  # n-grams of all shards that are merged together


def make_plan(memory: int, workers: int | None = None) -> Plan:
    """Derive the sizes from a limit in bytes, for the command and its workers together.

    By default there is a worker for each core, as far as the memory goes.

    Raises:
        SpectoolError: The memory is too little for so many workers.
    """
    least = _PROCESS + _LEAST_SHARE
    possible = (memory - _PROCESS) // least
    wanted = workers or min(possible, os.cpu_count() or 1)
    if possible < 1 or wanted > possible:
        needed = _PROCESS + max(1, wanted) * least
        raise SpectoolError(
            f"--memory is {memory / 1e6:,.0f} MB, expected at least {needed / 1e6:,.0f} MB for "
            f"{max(1, wanted)} worker(s). Give more memory, or fewer --workers"
        )
    share = (memory - _PROCESS) // wanted - _PROCESS
    symbols = min(share // _BYTES_PER_SYMBOL, _LARGEST_SHARD)
    return Plan(wanted, min(share // _BYTES_PER_TEXT_BYTE, _LARGEST_BLOCK), symbols, symbols)


def shards_of(sizes: Sequence[int], plan: Plan) -> list[tuple[int, int]]:
    """Put neighbouring blocks together until a shard is full, and leave some work for every worker.

    The blocks have ``sizes`` symbols. Returns the first block and the one after the last, for each shard.
    """
    largest = min(plan.shard_symbols, max(_WORTH_A_TASK, sum(sizes) // (2 * plan.workers)))
    shards = in_blocks(range(len(sizes)), sizes.__getitem__, largest)
    return [(shard[0], shard[-1] + 1) for shard in shards]


def bucket_number(records: int, sources: int, plan: Plan, every: int) -> int:
    """Return the number of buckets for the records of all sources, so that none has more than the plan allows.

    One record in ``every`` of each sorted source is in the sample that buckets are cut by.
    """
    # A bucket cut at a sample's key may hold up to `every` records more from each source.
    exact = max(plan.bucket_records - sources * every, plan.bucket_records // 4, 1)
    needed = -(-records // exact)
    return max(1, needed, min(plan.workers, records // _WORTH_A_TASK))


def in_blocks(items: Iterable[Item], size_of: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Yield items in their order, in lists of at most ``most`` together by ``size_of``; a larger item is alone."""
    block: list[Item] = []
    filled = 0
    for item in items:
        if block and filled + size_of(item) > most:
            yield block
            block, filled = [], 0
        block.append(item)
        filled += size_of(item)
    if block:
        yield block
