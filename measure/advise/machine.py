"""The machine: its memory, how fast that is read, and what verifying costs on it by a saved benchmark run."""

import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import isclose
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spectool import ArtifactError
from spectool.artifacts.formats.benchmark import PLAIN, Benchmark
from spectool.measure.advise.expect import Verification, fitted
from spectool.measure.advise.figures import Figure, measured, stated, unknown
from spectool.measure.bench.machine import processor

GB = 1e9
_COPIED = 128 << 20  # bytes of the copy that is timed: more than any cache holds
_ROUNDS = 5
_FEW = 5  # passes of a size, below which their median says nothing
_HEADERS = 0.01  # of a model's files, at most, beside its weights
_THREADS = 8  # at most: more do not read memory faster


@dataclass(frozen=True, slots=True)
class Machine:
    """What decides how fast weights are streamed.

    Attributes:
        name: Processor and system.
        bandwidth: Bytes a second that are read or written.
        memory: Bytes.
    """

    name: str
    bandwidth: Figure
    memory: Figure


def this_machine(bandwidth: float | None = None, memory: float | None = None) -> Machine:
    """Describe this machine, or the one that is stated.

    Args:
        bandwidth: GB/s; None times a copy, which takes some tenths of a second.
        memory: GB; None asks the system.
    """
    return Machine(
        f"{processor() or platform.machine()}, {os.cpu_count()} cores",
        measured(copy_bandwidth(), "copies in memory by the processor")
        if bandwidth is None
        else stated(bandwidth * GB),
        _memory() if memory is None else stated(memory * GB),
    )


def copy_bandwidth() -> float:
    """Return the bytes a second that the processor reads and writes, all its threads copying: the best of some rounds.

    A GPU with memory of its own reads that faster; where memory is shared, as on a Mac, the GPU reads about as fast.
    """
    threads = min(_THREADS, os.cpu_count() or 1)
    source = np.ones(_COPIED, np.uint8)
    parts = list(zip(np.array_split(source, threads), np.array_split(np.empty_like(source), threads), strict=True))
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_ROUNDS):
            started = time.perf_counter()
            list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), parts))
            best = min(best, time.perf_counter() - started)
    return 2 * _COPIED / best


def _memory() -> Figure:
    try:
        return measured(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "what the system has")
    except (ValueError, OSError, AttributeError):
        return unknown("this system does not tell; state it with --memory")


def verification_of(path: Path, target: str, weights: float | None) -> Verification:
    """Return what a pass over drafts took, in plain steps of the same block, by medians over the cycles of a run.

    Args:
        path: Directory of the run.
        target: The model asked about: the one of the run at this path, of as many bytes, or of this name.
        weights: Bytes of its weights, or of the files that hold them; None where nothing tells.

    Raises:
        ArtifactError: It is no whole run, has no such model, or too few passes to tell.
    """
    run = Benchmark(path)
    name = _model(run, target, weights)
    columns = ["block", "order", "drafter", "passes", "seconds"]
    mine = run.generations.filter(pc.field("model") == name).select(columns)
    timed = mine.filter((pc.field("drafter") == PLAIN) & (pc.field("passes") > 0))
    plain = pa.table({"block": timed["block"], "step": pc.divide(timed["seconds"], timed["passes"])})
    drafted = mine.filter(pc.field("drafter") != PLAIN).select(["block", "order"])
    later = run.cycles.filter(pc.field("cycle") > 0)  # the first one waits for the prompt
    cycles = later.join(drafted, ["block", "order"], join_type="inner").join(plain, "block", join_type="inner")
    costs = pc.divide(cycles["pass_seconds"], cycles["step"])
    drafts = pa.table({"k": cycles["proposed"], "cost": costs}).filter(pc.field("k") > 0)
    grouped = drafts.group_by("k").aggregate([("cost", "list")]).sort_by("k")
    passes = {k.as_py(): found.values.to_numpy() for k, found in zip(*grouped.select(["k", "cost_list"]), strict=True)}
    medians = {k: max(1.0, float(np.median(found))) for k, found in passes.items() if len(found) >= _FEW}
    if not medians:
        raise ArtifactError(
            f"{path}: expected plain generations of {name} and at least {_FEW} passes over drafts of one length, got "
            f"{len(plain)} and {max(map(len, passes.values()), default=0)}. Measure a longer run: spectool bench"
        )
    rest = pc.subtract(pc.subtract(cycles["seconds"], cycles["draft_seconds"]), cycles["pass_seconds"])
    loop = float(np.median(pc.divide(rest, cycles["step"]).to_numpy()))
    return fitted(medians, f"medians of {path}", max(0.0, loop))


def _model(run: Benchmark, target: str, weights: float | None) -> str:
    """Return which model of the run the target is; other bytes make another model of an equal name."""
    models: dict[str, str] = {model["name"]: model["path"] for model in run.manifest.arguments["models"]}
    sizes: dict[str, int] = run.manifest.statistics.get("sizes", {})
    given = Path(target).expanduser().resolve()
    place = given.parent if given.name == "tokenizer.json" else given
    for name, path in models.items():
        if target == path or place == Path(path).expanduser().resolve():
            return name
    named = [name for name in models if name in (target, place.name)]
    for name in (*named, *models):
        if weights is None or name not in sizes:
            if name in named:
                return name
        elif isclose(sizes[name], weights, rel_tol=_HEADERS):
            return name
    found = [f"{name} ({path}{f', {sizes[name]:,} bytes' if name in sizes else ''})" for name, path in models.items()]
    raise ArtifactError(
        f"{run.path}: expected a run of {target}{'' if weights is None else f' ({weights:,.0f} bytes)'}, got one of "
        f"{', '.join(found)}. Name another --run or --target; if they are one model, state the bytes that the run says "
        "with --target-bytes"
    )
