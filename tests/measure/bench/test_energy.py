"""Meters: stated power, the processor's counters, and what powermetrics prints."""

import plistlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spectool.measure.bench.energy import PowerMetrics, Rapl, Stated, joules_of, metering, samples

pytestmark = pytest.mark.system


def sample(milliwatts: float, seconds: float) -> bytes:
    values = {"elapsed_ns": int(seconds * 1e9), "processor": {"combined_power": milliwatts}}
    return plistlib.dumps(values)


def test_stated_watts_are_multiplied_with_time() -> None:
    meter = Stated(30.0)
    began = time.perf_counter()
    reading = meter.begin()
    time.sleep(0.05)
    joules = meter.end(reading)
    assert joules is not None
    assert 0.05 * 30 <= joules <= (time.perf_counter() - began) * 30
    assert Stated(None).end(0.0) is None


def test_counters_of_all_packages_are_summed_and_may_wrap(tmp_path: Path) -> None:
    for package, energy in (("intel-rapl:0", 5_000_000), ("intel-rapl:1", 1_000_000), ("intel-rapl:0:0", 7)):
        (tmp_path / package).mkdir()
        (tmp_path / package / "energy_uj").write_text(f"{energy}\n")
        (tmp_path / package / "max_energy_range_uj").write_text("10000000\n")
    meter = Rapl(tmp_path)
    begun = meter.begin()
    assert begun == 6.0
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("3500000\n")
    assert meter.end(begun) == pytest.approx(2.5)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("500000\n")
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("1000000\n")
    assert meter.end(begun) == pytest.approx(20 - 6 + 1.5)


def test_no_counters_no_meter(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=tmp_path.name):
        Rapl(tmp_path)


def test_samples_are_split_wherever_chunks_end() -> None:
    parts = [sample(1000, 0.1), sample(2000, 0.2), sample(3000, 0.3)]
    stream = b"\0".join(parts) + b"\0"
    for size in (1, 7, 100, len(stream)):
        chunks = (stream[at : at + size] for at in range(0, len(stream), size))
        assert [round(joules_of(part), 6) for part in samples(chunks)] == [0.1, 0.4, 0.9]


def test_a_process_that_prints_samples_is_read_as_they_come() -> None:
    script = (
        "import plistlib, sys, time\n"
        "for _ in range(3):\n"
        "    values = {'elapsed_ns': 100_000_000, 'processor': {'combined_power': 20_000.0}}\n"
        "    sys.stdout.buffer.write(plistlib.dumps(values) + b'\\0'); sys.stdout.flush()\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        meter = PowerMetrics(process)
        assert meter.wait(20)
        for _ in range(200):
            if (meter.end(0.0) or 0) > 5.9:
                break
            time.sleep(0.05)
        assert meter.end(0.0) == pytest.approx(6.0)
        process.kill()
        process.wait()
        for _ in range(200):
            if meter.end(0.0) is None:
                break
            time.sleep(0.05)
        assert meter.end(0.0) is None  # nobody measures any more


@pytest.mark.parametrize("printed", ["no list at all", "", plistlib.dumps({"elapsed_ns": 5}).decode()])
def test_what_cannot_be_read_measures_nothing(printed: str) -> None:
    script = f"import sys, time\nprint({printed!r}, end=chr(0), flush=True)\ntime.sleep(1)\n"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        meter = PowerMetrics(process)
        assert not meter.wait(3)
        assert meter.end(meter.begin()) is None


def test_stated_power_comes_first() -> None:
    with metering(15.0) as meter:
        assert (meter.source, meter.watts) == ("stated", 15.0)
    with metering(None) as meter:
        assert meter.source in ("none", "rapl", "powermetrics")
