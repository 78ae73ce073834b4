"""What the times of a run depend on."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from spectool import __version__

_CPUINFO = Path("/proc/cpuinfo")


def versions() -> dict[str, str]:
    """Return the versions of what runs on this machine."""
    return {"mlx": version("mlx"), "mlx_lm": version("mlx-lm"), "spectool": __version__}


def machine() -> dict[str, Any]:
    """Return this machine's system, processor, memory and device, and `versions`."""
    import mlx.core as mx

    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": processor(),
        "cores": os.cpu_count() or 0,
        "memory_bytes": memory_bytes(),
        "device": str(mx.default_device()),
        **versions(),
    }


def memory_bytes() -> int:
    """Return how much memory the system has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def processor() -> str:
    """Return the processor's name, as the system gives it."""
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    lines = _CPUINFO.read_text(encoding="utf-8").splitlines() if _CPUINFO.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
