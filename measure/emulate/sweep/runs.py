"""``spectool emulate --sweep``: a grid of drafters built and replayed, in parallel, resumable.

    DIR/runs.parquet           every run that was measured; see `results`
    DIR/report.md  *.svg *.png tables and plots of them
    DIR/parts/                 while it works: one file of runs for each finished group, counted n-grams

A group of runs is measured in one go by one process. What a killed sweep had finished stays in
``parts`` and is not measured again.
"""

import hashlib
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from spectool import ArtifactError, SpectoolError
from spectool.artifacts.tokenizer.opening import open_tokenizer
from spectool.artifacts.work import locked
from spectool.corpora import OnError
from spectool.measure.emulate.sweep.grid import Grid
from spectool.measure.emulate.sweep.methods import METHODS, Settings
from spectool.measure.emulate.sweep.results import RUNS, Row, key, merged, read_runs, write_runs
from spectool.measure.emulate.sweep.text import SweptText

PARTS = "parts"
_PART = ".runs.parquet"


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that one process measures in one go: all that a method makes at once of a language and a tokenizer.

    Attributes:
        method: Name of the method.
        language: Name of the language.
        tokenizer: Name of the tokenizer.
        source: Where the tokenizer is opened from.
        text: The language's text.
        settings: What to measure.
        lengths: Longest proposals, tokens.
        limit: Tokens to replay, 0 for all.
        measured_on: Columns of every row that say what it was measured on.
    """

    method: str
    language: str
    tokenizer: str
    source: str
    text: SweptText
    settings: tuple[Settings, ...]
    lengths: tuple[int, ...]
    limit: int
    measured_on: tuple[tuple[str, Any], ...]

    def rows(self) -> Iterator[Row]:
        """Yield the settings of each of its runs, as columns."""
        for settings in self.settings:
            for length in self.lengths:
                yield self.row(settings, length)

    def row(self, settings: Settings, length: int) -> Row:
        """Return the columns that tell one run from all others."""
        names = {"language": self.language, "tokenizer": self.tokenizer, "method": self.method}
        return {**names, **settings._asdict(), "num_draft_tokens": length, **dict(self.measured_on)}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a sweep has.

    Attributes:
        path: The file of runs.
        rows: All runs of the grid, sorted by their settings.
        measured: How many of them were measured now.
        seconds: How long that took.
    """

    path: Path
    rows: list[Row]
    measured: int
    seconds: float


def run_sweep(
    grid: Grid,
    out: Path,
    workers: int,
    on_error: OnError = "stop",
    text_field: str | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
    note: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Measure what is missing of a grid and write ``out/runs.parquet``.

    Args:
        grid: What to measure.
        out: Folder of results; made if needed. Runs of other grids in it are kept.
        workers: Processes; 1 measures in this one.
        on_error: As for `open_corpus`.
        text_field: Likewise.
        progress: Called with the runs that are there, of how many.
        note: Told, in a phrase, when a text is counted.

    Raises:
        SpectoolError: A corpus or tokenizer cannot be used, or a process died.
    """
    started = time.perf_counter()
    groups = plan(grid, out / PARTS, on_error, text_field)
    wanted = {key(row) for group in groups for row in group.rows()}
    with _locked(out) as parts:
        kept = _saved(out)
        done = {key(row) for row in kept} & wanted
        todo = [_without(group, done) for group in groups]
        todo = [group for group in todo if group.settings]
        progress(len(done), len(wanted))
        measured = 0
        for group in _measure_all(todo, workers, note):
            measured += len(group.settings) * len(group.lengths)
            progress(len(done) + measured, len(wanted))
        if any(parts.glob(f"*{_PART}")):
            write_runs(out / RUNS, _saved(out))
        shutil.rmtree(parts)
    rows = [row for row in read_runs(out / RUNS) if key(row) in wanted]
    return Outcome(out / RUNS, rows, measured, time.perf_counter() - started)


def plan(grid: Grid, parts: Path, on_error: OnError = "stop", text_field: str | None = None) -> list[Group]:
    """Return all groups of a grid. Opens tokenizers and finds corpora, so that what is missing is said at once."""
    fingerprints = {name: open_tokenizer(source).fingerprint for name, source in grid.tokenizers.items()}
    sizes: dict[str, int] = {}
    for name, axes in grid.methods.items():
        for order, size in METHODS[name].word_ngrams(axes).items():
            sizes[order] = max(size, sizes.get(order, 0))
    groups = []
    for name, language in grid.languages.items():
        building = language.build is not None or language.counts is not None
        text = SweptText(language, parts, tuple(sorted(sizes.items())) if building else (), on_error, text_field)
        measured_on = {**text.measured_on(), "replay_limit": grid.replay_tokens}
        methods = grid.methods if building else {"plain": {}}
        planned = [(method, settings) for method, axes in methods.items() for settings in METHODS[method].plan(axes)]
        for (method, settings), (tokenizer, source) in product(planned, grid.tokenizers.items()):
            groups.append(
                Group(
                    method,
                    name,
                    tokenizer,
                    source,
                    text,
                    tuple(settings),
                    grid.num_draft_tokens if building else (0,),
                    grid.replay_tokens,
                    (("fingerprint", fingerprints[tokenizer]), *measured_on.items()),
                )
            )
    return groups


def _without(group: Group, done: set[tuple[Any, ...]]) -> Group:
    """Leave out the settings of a group whose runs are all there."""
    missing = [s for s in group.settings if any(key(group.row(s, length)) not in done for length in group.lengths)]
    return replace(group, settings=tuple(missing))


def _measure_all(groups: Sequence[Group], workers: int, note: Callable[[str], None]) -> Iterator[Group]:
    """Measure groups, in processes of their own if there are to be several; yields each when its part is on disk."""
    for text in dict.fromkeys(group.text for group in groups):
        text.count(note)
    if min(workers, len(groups)) <= 1:
        for group in groups:
            measure(group)
            yield group
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, _start_worker) as pool:
        try:
            running = {pool.submit(measure, group): group for group in groups}
            for future in as_completed(running):
                future.result()
                yield running[future]
        except BrokenProcessPool as error:
            raise SpectoolError(
                f"a process of the sweep died, perhaps for want of memory: expected {workers} to live. What was "
                "measured is kept: run the same command again, with fewer --workers"
            ) from error
        except BaseException:
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def _start_worker() -> None:
    """Die at once with Ctrl-C, and with the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def measure(group: Group) -> None:
    """Measure the runs of a group and write them as one part."""
    started = time.perf_counter()
    tokenizer = _tokenizer(group.source)
    documents, words = _documents(group.text, group.source, group.limit)
    tokens = sum(map(len, documents))
    rows = []
    for candidate in METHODS[group.method].measure(tokenizer, group.text, documents, group.settings):
        for length in group.lengths:
            statistics = candidate.replay(length)
            rows.append(
                {
                    **group.row(candidate.settings, length),
                    "build_words": group.text.words(),
                    "replay_words": words,
                    "tokens": tokens,
                    "fertility": tokens / words if words else 0.0,
                    "entries": candidate.entries,
                    "file_bytes": candidate.file_bytes,
                    "passes": statistics.passes,
                    "drafted_passes": statistics.drafted_passes,
                    "proposed": statistics.proposed,
                    "accepted": statistics.accepted,
                    "tokens_per_pass": statistics.tokens_per_pass,
                    "acceptance": statistics.acceptance_rate,
                    "mean_accepted_length": statistics.mean_accepted_length,
                    "coverage": statistics.coverage,
                }
            )
    seconds = (time.perf_counter() - started) / max(1, len(rows))
    name = hashlib.sha256(repr([key(row) for row in rows]).encode()).hexdigest()[:16]
    write_runs(group.text.folder / f"{name}{_PART}", [{**row, "seconds": seconds} for row in rows])


_tokenizer = lru_cache(maxsize=2)(open_tokenizer)


@lru_cache(maxsize=2)
def _documents(text: SweptText, source: str, limit: int) -> tuple[list[list[int]], int]:
    return text.replayed(_tokenizer(source), limit)


def _saved(out: Path) -> list[Row]:
    """Read every run of earlier sweeps, merged or not."""
    files = [file for file in (out / RUNS, *sorted((out / PARTS).glob(f"*{_PART}"))) if file.exists()]
    return merged(read_runs(file) for file in files)


@contextmanager
def _locked(out: Path) -> Iterator[Path]:
    """Give the folder of parts to one sweep alone, without what a killed one left half-written."""
    parts = out / PARTS
    try:
        parts.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"{out}: cannot be written there ({error.strerror}). Choose another -o") from error
    with locked(out / ".lock", f"{out}: another sweep is writing there"):
        for leftover in parts.glob(".*.partial"):
            leftover.unlink()
        yield parts
