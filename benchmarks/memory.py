"""Memory of this process, for the benchmarks."""

import resource
from pathlib import Path


def resident_mb() -> float:
    """Return the memory of this process in MB, where the system tells (Linux); else not a number."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return float("nan")
    return pages * resource.getpagesize() / 1e6
