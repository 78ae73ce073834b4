"""Which machine this is, and how large a model: what passes depend on."""

import ctypes
import os
import platform
from importlib.metadata import version
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten

from spectool.runtime.groups.link import processes_of

_SMALL = 1 << 27  # bytes of a model that is fast with any BLAS


def machine_name() -> str:
    """Device, processors, BLAS library and version of MLX, in a line."""
    device = mx.default_device()
    if device.type == mx.DeviceType.cpu:
        blas = "preloaded BLAS" if hasattr(ctypes.CDLL(None), "cblas_sgemm") else "BLAS of MLX"
        name = f"CPU, {os.cpu_count()} cores, {blas}"
    else:
        info: dict[str, Any] = mx.device_info()
        name = str(info.get("device_name", device))
    return f"{name}, {platform.system()} {platform.machine()}, mlx {version('mlx')}"


def machine_of(model: Any) -> str:
    """The machine, and how many processes the model is spread over."""
    processes = processes_of(model)
    return machine_name() if processes == 1 else f"{machine_name()}, {processes} processes"


def blas_advice(model: Any) -> str:
    """What to do about MLX's own BLAS, with which drafting cannot pay; empty where it does not matter."""
    dtypes = {weight.dtype for _, weight in cast("Any", tree_flatten(model.parameters()))}
    if "BLAS of MLX" not in machine_name() or dtypes != {mx.float32} or weight_bytes(model) < _SMALL:
        return ""
    return (
        "The weights are float32, and with MLX's own BLAS a pass over several tokens takes many times as long as one. "
        "Preload OpenBLAS: sudo apt install libopenblas0-pthread, and then begin every command with "
        f"LD_PRELOAD=/usr/lib/{platform.machine()}-linux-gnu/libopenblas.so.0"
    )


def weight_bytes(model: Any) -> int:
    """The size of an MLX model's weights."""
    return sum(weight.nbytes for _, weight in cast("Any", tree_flatten(model.parameters())))
