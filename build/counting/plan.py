"""How large the parts of the text and the buckets of n-grams may be, so that counting stays within its memory."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from spectool import SpectoolError

SAMPLE_EVERY = 1024
"""One key of this many in each part is in the sample by which buckets are cut."""

_PROCESS = 220 * 10**6  # an interpreter with numpy, Arrow and a tokenizer, bytes
_LEAST_SHARE = 64 * 10**6  # of each thread
_BYTES = 64  # for each byte of a part's text or record of a bucket, at the peak of the tasks, when all n-grams differ
_LARGEST_PART = 8 * 2**20  # so that small corpora, too, keep all threads busy
_LARGEST_BUCKET = 2**23  # larger ones take longer to sort than they save
_WORTH_A_TASK = 2**20  # records; fewer are not spread over threads


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of parts and buckets. The counts do not depend on them."""

    threads: int  # tasks that run at the same time
    part_bytes: int  # text in a part, bytes of UTF-8; a document is never cut
    bucket_records: int  # n-grams of all parts that are merged together


def make_plan(memory: int) -> Plan:
    """The sizes for a limit in bytes. There is a thread for each core, as far as the memory goes.

    Raises:
        SpectoolError: The memory is too little for one thread.
    """
    threads = min((memory - _PROCESS) // _LEAST_SHARE, os.cpu_count() or 1)
    if threads < 1:
        raise SpectoolError(
            f"--memory is {memory / 1e6:,.0f} MB, expected at least {(_PROCESS + _LEAST_SHARE) / 1e6:,.0f} MB. Give "
            "more memory"
        )
    size = (memory - _PROCESS) // threads // _BYTES
    return Plan(threads, min(size, _LARGEST_PART), min(size, _LARGEST_BUCKET))


def bucket_cuts(records: int, samples: Sequence[Sequence[int]], plan: Plan) -> list[int]:
    """The first key of every bucket but the first, so that none has more records than the plan allows.

    The samples have one of `SAMPLE_EVERY` keys of each part, ``records`` is the number of all.
    """
    # A bucket that is cut at a sample's key may hold up to SAMPLE_EVERY records more from each part.
    exact = max(plan.bucket_records - len(samples) * SAMPLE_EVERY, plan.bucket_records // 4, 1)
    needed = -(-records // exact)
    buckets = max(1, needed, min(plan.threads, records // _WORTH_A_TASK))
    keys = sorted(chain.from_iterable(samples))
    return [keys[k * len(keys) // buckets] for k in range(1, buckets)]
