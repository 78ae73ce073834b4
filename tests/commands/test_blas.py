"""The hint about a faster BLAS library: for which models and libraries it appears, and what it tells to do."""

import platform
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest

from spectool.commands.shared import blas

CPU = mx.default_device().type == mx.DeviceType.cpu
PROBE = "import mlx.core as mx; from spectool.commands.shared import blas; print(blas._bundled_blas_in_use())"


@pytest.fixture
def slow_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(blas, "_bundled_blas_in_use", lambda: True)


@pytest.mark.skipif(not CPU, reason="MLX computes on a GPU here")
def test_models_in_float32_are_those_that_it_is_about(slow_blas: None) -> None:
    model = nn.Linear(64, 64)
    hint = blas.blas_hint(model)
    assert hint is not None and "\n" not in hint
    assert "LD_PRELOAD=" in hint and "spectool generate" in hint
    quantised = nn.Sequential(nn.Linear(64, 64))
    nn.quantize(quantised)
    assert blas.blas_hint(quantised) is None
    model.set_dtype(mx.bfloat16)
    assert blas.blas_hint(model) is None


@pytest.mark.skipif(not (CPU and sys.platform == "linux"), reason="about MLX's wheels for Linux without a GPU")
def test_a_library_that_is_preloaded_is_seen() -> None:
    def asked(**environment: str) -> str:
        command = [sys.executable, "-c", PROBE]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()

    path = ":".join(filter(None, sys.path))
    bundled = asked(PYTHONPATH=path)
    assert bundled == str(any("mlx_cpu.libs" in line for line in Path("/proc/self/maps").read_text().splitlines()))
    library = Path(f"/usr/lib/{platform.machine()}-linux-gnu/libopenblas.so.0")
    if library.is_file():
        assert asked(PYTHONPATH=path, LD_PRELOAD=str(library)) == "False"
