"""A hint for Linux machines without a GPU, where MLX may compute with a slow BLAS library.

MLX's wheels for the CPU bring the reference BLAS, which is used for matrices in float32. A library that is loaded
before MLX takes precedence.
"""

import ctypes
import platform
import sys
from pathlib import Path
from typing import Any

import click


def blas_hint(model: Any) -> str | None:
    """A line about a faster BLAS library; None if an mlx-lm model would not gain from one.

    Args:
        model: An mlx-lm model.
    """
    if sys.platform != "linux" or not (_computes_in_float32(model) and _bundled_blas_in_use()):
        return None
    context = click.get_current_context(silent=True)
    command = context.command.name if context else "generate"
    library = f"/usr/lib/{platform.machine()}-linux-gnu/libopenblas.so.0"
    where = f"LD_PRELOAD={library} spectool {command} …"
    return (
        "MLX computes this model with a reference BLAS here, which can take many times longer than OpenBLAS. Install "
        f"OpenBLAS (on Debian: apt install libopenblas0-pthread) and preload it: {where}"
    )


def _computes_in_float32(model: Any) -> bool:
    import mlx.core as mx
    from mlx.utils import tree_flatten

    if mx.default_device().type != mx.DeviceType.cpu:
        return False
    parameters: Any = tree_flatten(model.parameters())
    weights = (weight for name, weight in parameters if name.endswith("weight"))  # not the scales of quantised ones
    return any(weight.dtype == mx.float32 and weight.ndim > 1 for weight in weights)


def _bundled_blas_in_use() -> bool:
    """Whether MLX's own BLAS library is loaded, and no other one takes precedence."""
    try:
        bundled = "mlx_cpu.libs/libblas-" in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    # Symbols of a preloaded library are found globally, those of MLX's libraries are not.
    return bundled and not hasattr(ctypes.CDLL(None), "cblas_sgemm")
