"""A hint for Linux machines without a GPU, where MLX may compute with a slow BLAS library.

MLX's wheels for the CPU bring the reference BLAS, which uses neither vector instructions nor threads. Matrices in
float32 are multiplied with it; for half precision and quantised weights MLX has kernels of its own. A library that is
loaded before MLX takes precedence, because its symbols are found first.
"""

import ctypes
import platform
import sys
from pathlib import Path
from typing import Any

import click

_BUNDLED = "mlx_cpu.libs/libblas-"
_INSTALL = {"debian": "sudo apt install libopenblas0-pthread", "fedora": "sudo dnf install openblas-threads"}


def blas_hint(model: Any) -> str | None:
    """One line about a faster BLAS library, with the command that uses it; None where there is nothing to gain.

    Args:
        model: An mlx-lm model.
    """
    if sys.platform != "linux" or not (_computes_in_float32(model) and _bundled_blas_in_use()):
        return None
    family = _family()
    library = _library()
    where = library or _candidates()[1 if family == "fedora" else 0]
    install = "" if library else f"{_INSTALL.get(family, 'install OpenBLAS')}, then "
    context = click.get_current_context(silent=True)
    command = context.command.name if context else "generate"
    return (
        "MLX computes this model with a reference BLAS here, which can take many times longer than OpenBLAS. "
        f"To use OpenBLAS: {install}LD_PRELOAD={where} spectool {command} …"
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
    """Whether MLX's own BLAS library is loaded, and no other one that would be found before it."""
    try:
        bundled = _BUNDLED in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    # The symbols that this process finds globally: those of LD_PRELOAD among them, those of MLX's libraries not.
    return bundled and not hasattr(ctypes.CDLL(None), "cblas_sgemm")


def _candidates() -> list[Path]:
    """Where OpenBLAS lies on Debian and Ubuntu, on Fedora, and on other distributions; threaded builds first."""
    debian = Path(f"/usr/lib/{platform.machine()}-linux-gnu/libopenblas.so.0")
    names = ("libopenblasp.so.0", "libopenblas_pthreads.so.0", "libopenblas.so.0")
    return [debian, *(Path("/usr/lib64") / name for name in names), Path("/usr/lib/libopenblas.so.0")]


def _library() -> Path | None:
    return next((path for path in _candidates() if path.is_file()), None)


def _family() -> str:
    """``debian`` or ``fedora`` where this distribution is one of these or made from it."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    known = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    return next((family for family in _INSTALL if family in known), "")
