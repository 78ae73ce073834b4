"""``spectool emulate --sweep``: a grid of drafters built and replayed, in parallel, resumable.

    DIR/runs.parquet           every run that was measured; see `results`
    DIR/report.md  *.svg *.png tables and plots of them
    DIR/parts/                 while it works: one file of runs for each finished group, counted n-grams

A group of runs is measured in one go by one process. What a killed sweep had finished stays in
``parts`` and is not measured again.
"""

import hashlib
import multiprocessing
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, product
from pathlib import Path
from typing import Any

from spectool import SpectoolError
from spectool.artifacts.console import progress
from spectool.artifacts.tokenizer.opening import open_tokenizer
from spectool.artifacts.work import locked
from spectool.build.counting.engines import embedded
from spectool.corpora import OnError
from spectool.measure.emulate.replay import EncodedText
from spectool.measure.emulate.sweep.grid import DictSpecAxes, Grid
from spectool.measure.emulate.sweep.methods import METHODS, Settings
from spectool.measure.emulate.sweep.results import RUNS, Row, key, read_runs, write_runs
from spectool.measure.emulate.sweep.text import SweptText

PARTS = "parts"
_PART = ".runs.parquet"
_COUNTED = ("passes", "drafted_passes", "proposed", "accepted", "tokens_per_pass", "mean_accepted_length", "coverage")


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that one process measures in one go: all that a method makes at once of a language and a tokenizer.

    Attributes:
        text: The language's text.
        source: Where the tokenizer is opened from.
        limit: Tokens to replay, 0 for all.
        settings: What to measure.
        lengths: Longest proposals, tokens.
        columns: Of every row: names of method, language and tokenizer, and what it was measured on.
    """

    text: SweptText
    source: str
    limit: int
    settings: Sequence[Settings]
    lengths: tuple[int, ...]
    columns: Row

    def rows(self) -> Iterator[Row]:
        """Yield the columns of `results.KEY` of each of its runs."""
        for settings, length in product(self.settings, self.lengths):
            yield self.row(settings, length)

    def row(self, settings: Settings, length: int) -> Row:
        """Return the columns of one run."""
        return {**self.columns, **settings._asdict(), "num_draft_tokens": length}


def run_sweep(
    grid: Grid, out: Path, workers: int = 1, on_error: OnError = "stop", text_field: str | None = None
) -> tuple[list[Row], int]:
    """Measure what is missing of a grid, under a progress bar, and write ``out/runs.parquet``.

    Args:
        grid: What to measure.
        out: Folder of results; made if needed. Runs of other grids in it are kept.
        workers: Processes; 1 measures in this one.
        on_error: As for `open_corpus`.
        text_field: Likewise.

    Returns:
        All runs of the grid, sorted by their settings, and how many of them were measured now.

    Raises:
        SpectoolError: A corpus or tokenizer cannot be used, or a process died.
    """
    parts = out / PARTS
    groups = plan(grid, parts, on_error, text_field)
    wanted = {key(row) for group in groups for row in group.rows()}
    parts.mkdir(parents=True, exist_ok=True)
    with locked(out / ".lock", f"{out}: another sweep is writing there"):
        for leftover in parts.glob(".*.partial"):
            leftover.unlink()
        done = {key(row) for row in _saved(out)}
        todo = [group for group in (_without(group, done) for group in groups) if group.settings]
        missing = sum(len(list(group.rows())) for group in todo)
        with progress("replaying", missing, "runs") as update:
            for group in _measure_all(todo, workers):
                update(len(list(group.rows())))
        if any(parts.glob(f"*{_PART}")):
            write_runs(out / RUNS, _saved(out))
        shutil.rmtree(parts)
    return [row for row in read_runs(out / RUNS) if key(row) in wanted], missing


def plan(grid: Grid, parts: Path, on_error: OnError = "stop", text_field: str | None = None) -> list[Group]:
    """Return all groups of a grid. Opens tokenizers and finds corpora, so that what is missing is said at once."""
    fingerprints = {name: open_tokenizer(source).fingerprint for name, source in grid.tokenizers.items()}
    counted = grid.methods.get("dictspec")
    groups = []
    for name, language in grid.languages.items():
        building = bool(language.build or language.counts)
        text = SweptText(language, parts, on_error=on_error, text_field=text_field)
        if building and isinstance(counted, DictSpecAxes):
            text = replace(text, orders=counted.orders, entries=max(counted.entries))
        measured_on = {**text.measured_on(), "replay_limit": grid.replay_tokens}
        methods = grid.methods if building else {"plain": None}
        planned = [(method, settings) for method, axes in methods.items() for settings in METHODS[method].plan(axes)]
        for (method, settings), (tokenizer, source) in product(planned, grid.tokenizers.items()):
            names = {"language": name, "tokenizer": tokenizer, "method": method}
            columns = {**names, "fingerprint": fingerprints[tokenizer], **measured_on}
            lengths = grid.num_draft_tokens if building else (0,)
            groups.append(Group(text, source, grid.replay_tokens, settings, lengths, columns))
    return groups


def _without(group: Group, done: set[tuple[Any, ...]]) -> Group:
    """Leave out the settings of a group whose runs are all there."""
    missing = [s for s in group.settings if any(key(group.row(s, length)) not in done for length in group.lengths)]
    return replace(group, settings=missing)


def _measure_all(groups: Sequence[Group], workers: int) -> Iterator[Group]:
    """Measure groups, in processes of their own if there are to be several; yields each when its part is on disk."""
    for text in dict.fromkeys(group.text for group in groups):
        text.count()
    if min(workers, len(groups)) <= 1:
        for group in groups:
            measure(group)
            yield group
        return
    with embedded(workers) as executor:
        try:
            running = {executor.submit(measure, group): group for group in groups}
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


def measure(group: Group) -> None:
    """Measure the runs of a group and write them as one part."""
    started = time.perf_counter()
    tokenizer, text = _tokenizer(group.source), _encoded(group.text, group.source, group.limit)
    rows = []
    for candidate in METHODS[group.columns["method"]].measure(tokenizer, group.text, text.documents, group.settings):
        for length in group.lengths:
            statistics = candidate.replay(length)
            rows.append(
                {
                    **group.row(candidate.settings, length),
                    "build_words": group.text.build_words(),
                    "replay_words": text.words,
                    "tokens": text.tokens,
                    "fertility": text.fertility,
                    "entries": candidate.entries,
                    "file_bytes": candidate.file_bytes,
                    **{name: getattr(statistics, name) for name in _COUNTED},
                    "acceptance": statistics.acceptance_rate,
                }
            )
    seconds = (time.perf_counter() - started) / max(1, len(rows))
    name = hashlib.sha256(repr([key(row) for row in rows]).encode()).hexdigest()[:16]
    write_runs(group.text.folder / f"{name}{_PART}", [{**row, "seconds": seconds} for row in rows])


_tokenizer = lru_cache(maxsize=2)(open_tokenizer)


@lru_cache(maxsize=2)
def _encoded(text: SweptText, source: str, limit: int) -> EncodedText:
    return text.replayed(_tokenizer(source), limit)


def _saved(out: Path) -> list[Row]:
    """Read every run of earlier sweeps, merged or not."""
    files = [file for file in (out / RUNS, *sorted((out / PARTS).glob(f"*{_PART}"))) if file.exists()]
    return list(chain.from_iterable(map(read_runs, files)))
