"""The machine: its memory, how fast that is read, what verifying costs by a saved run; and what models weigh."""

import json
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import isclose, prod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from spectool import ArtifactError, SpectoolError
from spectool.artifacts.describe import needing_figures
from spectool.artifacts.formats.benchmark import PLAIN, Benchmark
from spectool.measure.advise.expect import Figure, Verification, computed, fitted, measured, stated, unknown
from spectool.measure.bench.machine import memory_bytes, processor

GB = 1e9
_COPIED = 128 << 20  # bytes of the copy that is timed: more than any cache holds
_ROUNDS = 5
_FEW = 5  # passes of a size, below which their median says nothing
_HEADERS = 0.01  # of a model's files, at most, beside its weights
_THREADS = 8  # at most: more do not read memory faster
_CACHE_BYTES = 2  # of a number in the cache: float16 or bfloat16


@dataclass(frozen=True)
class Machine:
    """What decides how fast weights are streamed."""

    name: str  # processor and system
    bandwidth: Figure  # bytes a second that are read or written
    memory: Figure  # bytes


def this_machine(bandwidth: float | None = None, memory: float | None = None) -> Machine:
    """Describe this machine, or one of a stated bandwidth (GB/s) and memory (GB). To time a copy takes a moment."""
    found = stated(bandwidth * GB) if bandwidth else measured(copy_bandwidth(), "copies in memory by the processor")
    room = stated(memory * GB) if memory else measured(memory_bytes(), "what the system has")
    return Machine(f"{processor() or platform.machine()}, {os.cpu_count()} cores", found, room)


def copy_bandwidth() -> float:
    """Return the bytes a second that the processor reads and writes, all its threads copying: the best of some rounds.

    A GPU with memory of its own reads that faster; where memory is shared, as on a Mac, the GPU reads about as fast.
    """
    threads = min(_THREADS, os.cpu_count() or 1)
    source = np.ones(_COPIED, np.uint8)
    copies, parts = np.array_split(np.empty_like(source), threads), np.array_split(source, threads)
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_ROUNDS):
            started = time.perf_counter()
            list(pool.map(np.copyto, copies, parts))
            best = min(best, time.perf_counter() - started)
    return 2 * _COPIED / best


def verification_of(path: Path, target: str, weights: float | None) -> Verification:
    """Return what a pass over drafts took in a run, in plain steps of the same block, by medians over its cycles.

    The run's model is the one at the path ``target``, of as many bytes (None where they are not known), or of its name.

    Raises:
        ArtifactError: It is no whole run, has no such model, or too few passes to tell.
    """
    run = Benchmark(path)
    run.check()  # of a stranger's run, cycles and generations may not belong together
    with needing_figures(f"{path}: this run"):
        name = _model(run, target, weights)
    mine = run.generations.filter(pc.field("model") == name).select(["block", "order", "drafter", "passes", "seconds"])
    plain = mine.filter((pc.field("drafter") == PLAIN) & (pc.field("passes") > 0)).to_pandas().set_index("block")
    later = run.cycles.filter(pc.field("cycle") > 0)  # the first one waits for the prompt
    drafted = mine.filter(pc.field("drafter") != PLAIN).select(["block", "order"])
    cycles = later.select(["block", "order", "proposed", "draft_seconds", "pass_seconds", "seconds"]).join(
        drafted, ["block", "order"], join_type="inner"
    )
    frame = cycles.to_pandas()
    step = frame["block"].map(plain["seconds"] / plain["passes"])
    costs = (frame["pass_seconds"] / step)[(frame["proposed"] > 0) & step.notna()].groupby(frame["proposed"])
    medians = costs.median()[costs.size() >= _FEW].clip(lower=1.0)
    if medians.empty:
        raise ArtifactError(
            f"{path}: expected plain generations of {name} and at least {_FEW} passes over drafts of one length, got "
            f"{len(plain)} and {max(costs.size(), default=0)}. Measure a longer run: spectool bench"
        )
    loop = ((frame["seconds"] - frame["draft_seconds"] - frame["pass_seconds"]) / step).median()
    passes = {int(k): float(cost) for k, cost in medians.items()}
    return fitted(passes, f"medians of {path}", max(0.0, float(loop)))


def _model(run: Benchmark, target: str, weights: float | None) -> str:
    """Return which model of the run the target is; other bytes make another model of an equal name."""
    models: dict[str, str] = {model["name"]: model["path"] for model in run.manifest.arguments["models"]}
    sizes: dict[str, int] = run.manifest.statistics.get("sizes", {})
    given = Path(target).expanduser().resolve()
    place = given.parent if given.name == "tokenizer.json" else given

    def as_large(name: str, unknown: bool) -> bool:
        return unknown if weights is None or name not in sizes else isclose(sizes[name], weights, rel_tol=_HEADERS)

    fitting = [
        *(name for name, path in models.items() if target == path or place == Path(path).expanduser().resolve()),
        *(name for name in models if name in (target, place.name) and as_large(name, unknown=True)),
        *(name for name in models if as_large(name, unknown=False)),
    ]
    if fitting:
        return fitting[0]
    found = [f"{name} ({path}{f', {sizes[name]:,} bytes' if name in sizes else ''})" for name, path in models.items()]
    raise ArtifactError(
        f"{run.path}: expected a run of {target}{'' if weights is None else f' ({weights:,.0f} bytes)'}, got one of "
        f"{', '.join(found)}. Name another --run or --target; if they are one model, state the bytes that the run says "
        "with --target-bytes"
    )


@dataclass(frozen=True)
class Sizes:
    """Bytes of a model in memory."""

    weights: Figure  # all of them, which every pass reads
    cache: Figure  # keys and values of a whole context

    @property
    def total(self) -> Figure:
        """Weights and cache; the weights alone where the cache is not known."""
        if self.weights.value is None:
            return self.weights
        if self.cache.value is None:
            return computed(self.weights.value, f"weights alone; {self.cache.origin}")
        return computed(self.weights.value + self.cache.value, "weights and cache")


def sizes_of(source: str, weights: int | None, context: int) -> Sizes:
    """Return what a model weighs, by its files where ``weights`` does not state the bytes; ``context`` is in tokens.

    Raises:
        SpectoolError: Its config.json is no JSON.
    """
    path = Path(source).expanduser()
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else []
    if weights is not None:
        found = stated(weights)
    elif files:
        found = measured(sum(file.stat().st_size for file in files), f"files of {path}")
    else:
        found = unknown(f"{source} has no *.safetensors; state its bytes")
    return Sizes(found, _cache(path / "config.json", context))


def is_model(source: str) -> bool:
    """Return whether a model lies there, and not a tokenizer alone."""
    path = Path(source).expanduser()
    return path.is_dir() and (path / "config.json").is_file() and any(path.glob("*.safetensors"))


def _cache(config: Path, context: int) -> Figure:
    """Return the bytes of keys and values as if every layer kept all of the context, in 16 bits."""
    if not config.is_file():
        return unknown("no config.json")
    try:
        read = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpectoolError(
            f"{config}: expected the configuration of a model in JSON, got {error}. Copy the model again"
        ) from error
    text: dict[str, Any] = read.get("text_config", read) if isinstance(read, dict) else {}
    layers, heads = text.get("num_hidden_layers"), text.get("num_attention_heads")
    size = text.get("head_dim") or (text.get("hidden_size", 0) // heads if heads else None)
    shape = [part for part in (layers, text.get("num_key_value_heads") or heads, size) if part]
    if len(shape) < 3 or not all(isinstance(part, int) for part in shape):
        return unknown("config.json does not name layers and heads")
    how = f"{context:,} tokens of 16-bit keys and values in {layers} layers"
    return computed(2 * prod(shape) * _CACHE_BYTES * context, how)
