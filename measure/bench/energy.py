"""Energy of a generation: measured where the machine tells, estimated from a stated power where it does not.

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
    """Tells the energy between two moments.

    Attributes:
        source: ``powermetrics``, ``rapl``, ``stated`` or ``none``.
        watts: What was stated; None elsewhere.
    """

    source: str
    watts: float | None

    def begin(self) -> float:
        """Return a reading."""

    def end(self, begun: float) -> float | None:
        """Return the joules since a reading; None where nothing tells."""


class Stated:
    """Seconds times stated watts; nothing where none are stated."""

    def __init__(self, watts: float | None) -> None:
        """Estimate with ``watts``."""
        self.source = "none" if watts is None else "stated"
        self.watts = watts

    def begin(self) -> float:
        """Return the time."""
        return time.perf_counter()

    def end(self, begun: float) -> float | None:
        """Return the joules since then."""
        return None if self.watts is None else (time.perf_counter() - begun) * self.watts


class Rapl:
    """The energy counters of the processor's packages."""

    source = "rapl"
    watts: float | None = None

    def __init__(self, folder: Path = RAPL) -> None:
        """Read the counters of all packages under ``folder``.

        Raises:
            OSError: There are none, or they may not be read.
        """
        self._packages = [path for path in sorted(folder.glob("*-rapl:*")) if path.name.count(":") == 1]
        if not self._packages:
            raise FileNotFoundError(folder)
        self._wraps = sum(int((path / "max_energy_range_uj").read_text()) for path in self._packages) / 1e6
        self.begin()

    def begin(self) -> float:
        """Return the counters' sum, joules."""
        return sum(int((path / "energy_uj").read_text()) for path in self._packages) / 1e6

    def end(self, begun: float) -> float | None:
        """Return the joules since a reading; a counter wraps about once an hour of full load."""
        used = self.begin() - begun
        return used if used >= 0 else used + self._wraps


class PowerMetrics:
    """Apple's power sampler, read by a thread while blocks run."""

    source = "powermetrics"
    watts: float | None = None

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Read what ``process`` prints."""
        assert process.stdout is not None
        self._joules = 0.0
        self._stream: Any = process.stdout
        self._sampled = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait for the first sample, so long at most; return whether it came."""
        return self._sampled.wait(seconds)

    def begin(self) -> float:
        """Return the joules so far."""
        return self._joules

    def end(self, begun: float) -> float | None:
        """Return the joules since a reading, to a tenth of a second; None where no samples come any more."""
        return self._joules - begun if self._sampled.is_set() and self._thread.is_alive() else None

    def _read(self) -> None:
        with suppress(KeyError, ValueError, plistlib.InvalidFileException, ExpatError, OSError):
            for sample in samples(iter(lambda: self._stream.read1(1 << 16), b"")):
                self._joules += joules_of(sample)
                self._sampled.set()


def samples(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Split a stream of property lists, each ended by a NUL byte."""
    held = b""
    for chunk in chunks:
        *whole, held = (held + chunk).split(b"\0")
        yield from (part for part in whole if part.strip())


def joules_of(sample: bytes) -> float:
    """Return the energy of one sample of powermetrics: milliwatts over nanoseconds."""
    read = plistlib.loads(sample)
    return float(read["processor"]["combined_power"]) / 1e3 * float(read["elapsed_ns"]) / 1e9


@contextmanager
def metering(watts: float | None) -> Iterator[Meter]:
    """Give the best meter of this machine; ``watts``, where they are stated, come before any."""
    if watts is not None:
        yield Stated(watts)
    elif sys.platform == "darwin" and shutil.which("powermetrics"):
        with _power_metrics() as meter:
            yield meter
    else:
        yield _counters()


def _counters() -> Meter:
    try:
        return Rapl()
    except OSError:  # not there, or for root alone
        return Stated(None)


@contextmanager
def _power_metrics() -> Iterator[Meter]:
    command = ["sudo", "-n", "powermetrics", "--samplers", "cpu_power,gpu_power", "-f", "plist", "-i", str(_EVERY)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=1 << 16)
    try:
        meter = PowerMetrics(process)
        yield meter if meter.wait(_PATIENCE) else Stated(None)
    finally:
        # It runs as root: where it may not be told to stop, it ends when nobody reads any more.
        with suppress(PermissionError):
            process.terminate()
        if process.stdout is not None:
            process.stdout.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
