"""Energy of a generation: measured where the machine says it, estimated from a stated power where it does not.

    powermetrics   macOS, as root: power of CPU, GPU and neural engine, sampled
    rapl           Linux: the processor's own energy counters, where they may be read
    stated         seconds times the watts that the user states, a chip's thermal design power for instance

Source of the estimate: paper on cross-family speculative decoding for Polish, section 6.6, equation 7.
"""

import plistlib
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from xml.parsers.expat import ExpatError

RAPL = Path("/sys/class/powercap")
_EVERY = 100  # milliseconds between two samples of powermetrics
_PATIENCE = 3.0  # seconds for its first sample, and for its end


class Meter(Protocol):
    """Counts energy."""

    source: str  # ``powermetrics``, ``rapl``, ``stated`` or ``none``

    def joules(self) -> float | None:
        """Return the joules since some moment, the same in all calls; None where they are not known."""


class Stated:
    """Seconds times stated watts; nothing where none are stated."""

    def __init__(self, watts: float | None) -> None:
        """Estimate with ``watts``."""
        self.source = "none" if watts is None else "stated"
        self._watts = watts

    def joules(self) -> float | None:
        """Return the joules since the clock's zero."""
        return None if self._watts is None else time.perf_counter() * self._watts


class Rapl:
    """The energy counters of the processor's packages, microjoules; one wraps about once an hour of full load."""

    source = "rapl"

    def __init__(self, folder: Path = RAPL) -> None:
        """Read the counters of all packages under ``folder``.

        Raises:
            OSError: There are none, or they may not be read.
        """
        packages = [path for path in sorted(folder.glob("*-rapl:*")) if path.name.count(":") == 1]
        if not packages:
            raise FileNotFoundError(folder)
        self._wraps = {path / "energy_uj": int((path / "max_energy_range_uj").read_text()) for path in packages}
        self._last = {file: int(file.read_text()) for file in self._wraps}
        self._used = 0

    def joules(self) -> float | None:
        """Return the joules since it was made."""
        for file, wraps in self._wraps.items():
            now = int(file.read_text())
            self._used += (now - self._last[file]) % wraps
            self._last[file] = now
        return self._used / 1e6


class PowerMetrics:
    """Apple's power sampler, read by a thread; a reading is right to a tenth of a second."""

    source = "powermetrics"

    def __init__(self, stream: Any) -> None:
        """Read property lists from ``stream``, each ended by a NUL byte; wait for the first one some seconds."""
        self._joules: float | None = None
        self._stream, self._sampled = stream, threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self.works = self._sampled.wait(_PATIENCE)

    def joules(self) -> float | None:
        """Return the joules since the first sample; None where no samples come any more."""
        return self._joules if self._thread.is_alive() else None

    def _read(self) -> None:
        held = b""
        with suppress(KeyError, ValueError, plistlib.InvalidFileException, ExpatError, OSError):
            for chunk in iter(lambda: self._stream.read1(1 << 16), b""):
                *samples, held = (held + chunk).split(b"\0")
                for sample in filter(bytes.strip, samples):
                    read = plistlib.loads(sample)  # milliwatts over nanoseconds
                    used = float(read["processor"]["combined_power"]) / 1e3 * float(read["elapsed_ns"]) / 1e9
                    self._joules = (self._joules or 0.0) + used
                    self._sampled.set()


@contextmanager
def metering(watts: float | None) -> Iterator[Meter]:
    """Give the best meter of this machine; ``watts``, where they are stated, come before any."""
    if watts is None and sys.platform == "darwin" and shutil.which("powermetrics"):
        with _power_metrics() as meter:
            yield meter
        return
    meter: Meter = Stated(watts)
    if watts is None:
        with suppress(OSError):  # not there, or for root alone
            meter = Rapl()
    yield meter


@contextmanager
def _power_metrics() -> Iterator[Meter]:
    command = ["sudo", "-n", "powermetrics", "--samplers", "cpu_power,gpu_power", "-f", "plist", "-i", str(_EVERY)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=1 << 16)
    assert process.stdout is not None
    try:
        meter = PowerMetrics(process.stdout)
        yield meter if meter.works else Stated(None)
    finally:
        # It runs as root: where it may not be told to stop, it ends when nobody reads any more.
        with suppress(PermissionError):
            process.terminate()
        process.stdout.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
