"""Which machine this is, and how large a model: what passes depend on."""

import ctypes
import os
import platform
from importlib.metadata import version
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten

from spectool.runtime.groups.link import processes_of


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


def weight_bytes(model: Any) -> int:
    """The size of an MLX model's weights."""
    return sum(weight.nbytes for _, weight in cast("Any", tree_flatten(model.parameters())))
