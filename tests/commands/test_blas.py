"""The hint about a faster BLAS library: for which models and libraries it appears, and what it tells to do."""

import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest

from spectool.commands import blas

CPU = mx.default_device().type == mx.DeviceType.cpu
PROBE = "import mlx.core as mx; from spectool.commands import blas; print(blas._bundled_blas_in_use())"


@pytest.fixture
def slow_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(blas, "_bundled_blas_in_use", lambda: True)


def distribution(monkeypatch: pytest.MonkeyPatch, found: Path | None, **release: str) -> None:
    monkeypatch.setattr(blas, "_library", lambda: found)
    monkeypatch.setattr(blas.platform, "freedesktop_os_release", lambda: release)
    monkeypatch.setattr(blas.platform, "machine", lambda: "aarch64")


@pytest.mark.skipif(not CPU, reason="MLX computes on a GPU here")
def test_models_in_float32_are_those_that_it_is_about(slow_blas: None, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(monkeypatch, Path("/usr/lib/libopenblas.so.0"))
    model = nn.Linear(64, 64)
    hint = blas.blas_hint(model)
    assert hint is not None and "\n" not in hint
    assert hint.endswith(": LD_PRELOAD=/usr/lib/libopenblas.so.0 spectool generate …") and "install" not in hint
    quantised = nn.Sequential(nn.Linear(64, 64))
    nn.quantize(quantised)
    assert blas.blas_hint(quantised) is None
    model.set_dtype(mx.bfloat16)
    assert blas.blas_hint(model) is None


@pytest.mark.skipif(not CPU, reason="MLX computes on a GPU here")
def test_it_says_how_to_install_what_is_missing(slow_blas: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(64, 64)
    expected = {
        "sudo apt install libopenblas0-pthread, then LD_PRELOAD=/usr/lib/aarch64-linux-gnu/libopenblas.so.0 ": [
            {"ID": "debian"},
            {"ID": "ubuntu", "ID_LIKE": "debian"},
            {"ID": "linuxmint", "ID_LIKE": "ubuntu debian"},
        ],
        "sudo dnf install openblas-threads, then LD_PRELOAD=/usr/lib64/libopenblasp.so.0 ": [
            {"ID": "fedora"},
            {"ID": "rocky", "ID_LIKE": "rhel centos fedora"},
        ],
        "install OpenBLAS, then LD_PRELOAD=": [{"ID": "slackware"}, {}],
    }
    for part, releases in expected.items():
        for release in releases:
            distribution(monkeypatch, None, **release)
            assert part in str(blas.blas_hint(model)), release


@pytest.mark.skipif(not (CPU and sys.platform == "linux"), reason="about MLX's wheels for Linux without a GPU")
def test_a_library_that_is_preloaded_is_seen() -> None:
    def asked(**environment: str) -> str:
        command = [sys.executable, "-c", PROBE]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()

    path = ":".join(filter(None, sys.path))
    bundled = asked(PYTHONPATH=path)
    assert bundled == str(any("mlx_cpu.libs" in line for line in Path("/proc/self/maps").read_text().splitlines()))
    if (library := blas._library()) is not None:
        assert asked(PYTHONPATH=path, LD_PRELOAD=str(library)) == "False"
