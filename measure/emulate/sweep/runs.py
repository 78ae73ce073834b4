"""``spectool emulate --sweep``: a grid of drafters built and replayed, in parallel, resumable.

    DIR/runs.parquet           every run that was measured; see `results`
    DIR/report.html report.md  tables and plots of them
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
from dataclasses import replace
from functools import lru_cache
from itertools import chain, groupby, product
from pathlib import Path
from typing import Any, NamedTuple

from spectool import SpectoolError
from spectool.artifacts.console import progress
from spectool.artifacts.tokenizer.opening import open_tokenizer
from spectool.artifacts.work import locked
from spectool.build.counting.engines import embedded
from spectool.corpora import OnError
from spectool.measure.emulate.replay import EncodedText
from spectool.measure.emulate.sweep.grid import DictSpecAxes, Grid
from spectool.measure.emulate.sweep.methods import METHODS
from spectool.measure.emulate.sweep.results import KEY, RUNS, Row, key, read_runs, write_runs
from spectool.measure.emulate.sweep.text import SweptText

PARTS = "parts"
_PART = ".runs.parquet"
_COUNTED = ("passes", "drafted_passes", "proposed", "accepted", "tokens_per_pass", "mean_accepted_length", "coverage")


class Group(NamedTuple):
    """Runs that one process measures in one go: all that a method makes at once of a language and a tokenizer."""

    text: SweptText  # the language's text
    source: str  # where the tokenizer is opened from
    limit: int  # tokens to replay, 0 for all
    rows: list[Row]  # of each run the columns of `results.KEY`


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
    wanted = {key(row) for group in groups for row in group.rows}
    parts.mkdir(parents=True, exist_ok=True)
    with locked(out / ".lock", f"{out}: another sweep is writing there"):
        for leftover in parts.glob(".*.partial"):
            leftover.unlink()
        done = {key(row) for row in _saved(out)}
        left = [group._replace(rows=[row for row in group.rows if key(row) not in done]) for group in groups]
        missing = sum(len(group.rows) for group in left)
        with progress("replaying", missing, "runs") as update:
            for group in _measure_all([group for group in left if group.rows], workers):
                update(len(group.rows))
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
        text = SweptText(language, parts, on_error=on_error, text_field=text_field)
        settings: dict[str, list[dict[str, Any]]] = {"plain": [{}]}
        if language.build or language.counts:
            settings = {method: list(axes.settings()) for method, axes in grid.methods.items()}
            if isinstance(counted, DictSpecAxes):
                text = replace(text, orders=counted.orders, entries=max(counted.entries))
        measured_on = {**text.measured_on(), "replay_limit": grid.replay_tokens}
        for method, (tokenizer, source) in product(settings, grid.tokenizers.items()):
            names = {"language": name, "tokenizer": tokenizer, "method": method}
            columns = {**dict.fromkeys(KEY), **names, "fingerprint": fingerprints[tokenizer], **measured_on}
            lengths = (0,) if method == "plain" else grid.num_draft_tokens
            for _, alike in groupby(settings[method], lambda one: one.get("order")):
                rows = [{**columns, **one, "num_draft_tokens": length} for one, length in product(alike, lengths)]
                groups.append(Group(text, source, grid.replay_tokens, rows))
    return groups


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
    measured_on = {
        "build_words": group.text.build_words(),
        "replay_words": text.words,
        "tokens": text.tokens,
        "fertility": text.fertility,
    }
    method = METHODS[group.rows[0]["method"]]
    rows = []
    for row, statistics in method(tokenizer, group.text, text.documents, group.rows):
        counted = {name: getattr(statistics, name) for name in _COUNTED}
        rows.append({**row, **measured_on, **counted, "acceptance": statistics.acceptance_rate})
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
