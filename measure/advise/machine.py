"""The machine: how fast its memory is read, and how much of it there is."""

import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from spectool.measure.advise.figures import Figure, measured, stated, unknown
from spectool.measure.bench.machine import processor

GB = 1e9
_COPIED = 128 << 20  # bytes of the copy that is timed: more than any cache holds
_ROUNDS = 5
_THREADS = 8  # at most: more do not read memory faster


@dataclass(frozen=True, slots=True)
class Machine:
    """What decides how fast weights are streamed.

    Attributes:
        name: Processor and system.
        bandwidth: Bytes a second that are read or written.
        memory: Bytes.
    """

    name: str
    bandwidth: Figure
    memory: Figure


def this_machine(bandwidth: float | None = None, memory: float | None = None) -> Machine:
    """Describe this machine, or the one that is stated.

    Args:
        bandwidth: GB/s; None times a copy, which takes some tenths of a second.
        memory: GB; None asks the system.
    """
    return Machine(
        f"{processor() or platform.machine()}, {os.cpu_count()} cores",
        measured(copy_bandwidth(), "copies in memory by the processor")
        if bandwidth is None
        else stated(bandwidth * GB),
        _memory() if memory is None else stated(memory * GB),
    )


def copy_bandwidth() -> float:
    """Return the bytes a second that the processor reads and writes, all its threads copying: the best of some rounds.

    A GPU with memory of its own reads that faster; where memory is shared, as on a Mac, the GPU reads about as fast.
    """
    threads = min(_THREADS, os.cpu_count() or 1)
    source = np.ones(_COPIED, np.uint8)
    parts = list(zip(np.array_split(source, threads), np.array_split(np.empty_like(source), threads), strict=True))
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_ROUNDS):
            started = time.perf_counter()
            list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), parts))
            best = min(best, time.perf_counter() - started)
    return 2 * _COPIED / best


def _memory() -> Figure:
    try:
        return measured(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "what the system has")
    except (ValueError, OSError, AttributeError):
        return unknown("this system does not tell; state it with --memory")
