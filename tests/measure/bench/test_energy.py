"""Meters: stated power, the processor's counters, and what powermetrics prints."""

import plistlib
import subprocess
import sys
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from spectool.measure.bench.energy import PowerMetrics, Rapl, Stated, metering

pytestmark = pytest.mark.system


def sample(milliwatts: float, seconds: float) -> bytes:
    values = {"elapsed_ns": int(seconds * 1e9), "processor": {"combined_power": milliwatts}}
    return plistlib.dumps(values)


def test_stated_watts_are_multiplied_with_time() -> None:
    meter = Stated(30.0)
    began = time.perf_counter()
    first = meter.joules()
    time.sleep(0.05)
    last = meter.joules()
    assert first is not None and last is not None
    assert 0.05 * 30 <= last - first <= (time.perf_counter() - began) * 30
    assert Stated(None).joules() is None


def test_counters_of_all_packages_are_summed_and_may_wrap(tmp_path: Path) -> None:
    for package, energy in (("intel-rapl:0", 5_000_000), ("intel-rapl:1", 1_000_000), ("intel-rapl:0:0", 7)):
        (tmp_path / package).mkdir()
        (tmp_path / package / "energy_uj").write_text(f"{energy}\n")
        (tmp_path / package / "max_energy_range_uj").write_text("10000000\n")
    meter = Rapl(tmp_path)
    assert meter.joules() == 0
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("3500000\n")
    assert meter.joules() == pytest.approx(2.5)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("500000\n")
    assert meter.joules() == pytest.approx(2.5 + 5.5)
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("1000000\n")
    assert meter.joules() == pytest.approx(2.5 + 5.5 + 7.5)


def test_no_counters_no_meter(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=tmp_path.name):
        Rapl(tmp_path)


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 16])
def test_samples_are_split_wherever_chunks_end(size: int) -> None:
    class Chunks(BytesIO):
        def read1(self, limit: int | None = -1) -> bytes:
            chunk = super().read1(size)
            while not chunk and not self.closed:  # more would come: the meter still works
                time.sleep(0.01)
            return chunk

    parts = [sample(1000, 0.1), sample(2000, 0.2), sample(3000, 0.3)]
    with Chunks(b"\0".join(parts) + b"\0") as stream:
        meter = PowerMetrics(stream)
        assert meter.works
        wait_for(lambda: (meter.joules() or 0) > 1.3)
        assert meter.joules() == pytest.approx(0.1 + 0.4 + 0.9)


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)


def test_a_process_that_prints_samples_is_read_as_they_come() -> None:
    script = (
        "import plistlib, sys, time\n"
        "for _ in range(3):\n"
        "    values = {'elapsed_ns': 100_000_000, 'processor': {'combined_power': 20_000.0}}\n"
        "    sys.stdout.buffer.write(plistlib.dumps(values) + b'\\0'); sys.stdout.flush()\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        meter = PowerMetrics(process.stdout)
        assert meter.works
        wait_for(lambda: (meter.joules() or 0) > 5.9)
        assert meter.joules() == pytest.approx(6.0)
        process.kill()
        process.wait()
        wait_for(lambda: meter.joules() is None)
        assert meter.joules() is None  # nobody measures any more


@pytest.mark.parametrize("printed", ["no list at all", "", plistlib.dumps({"elapsed_ns": 5}).decode()])
def test_what_cannot_be_read_measures_nothing(printed: str) -> None:
    script = f"import sys, time\nprint({printed!r}, end=chr(0), flush=True)\ntime.sleep(1)\n"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        meter = PowerMetrics(process.stdout)
        assert not meter.works
        assert meter.joules() is None


def test_stated_power_comes_first() -> None:
    with metering(15.0) as meter:
        assert isinstance(meter, Stated) and meter.source == "stated"
    with metering(None) as meter:
        assert meter.source in ("none", "rapl", "powermetrics")
