"""The options of ``spectool emulate --sweep``, and what becomes of them."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from spectool.artifacts.console import say, show


def sweep_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a sweep to ``emulate``, which hands them on to `sweep`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option(
        "--sweep",
        "name",
        metavar="GRID",
        help="Build and replay a whole grid of dictionaries: `paper`, or a TOML file that describes the grid.",
    ),
    click.option(
        "-o",
        "--out",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder for what --sweep finds: runs.parquet, report.md and plots. Runs that it has are not measured "
        "again.",
    ),
    click.option(
        "--workers",
        type=click.IntRange(1),
        help="Processes of --sweep, each of some 2 GB with a million n-grams; one for each core by default.",
    ),
    click.option(
        "--tokenizers",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder with the tokenizers of --sweep paper: gemma-3, mistral-7b-v0.1, mistral-nemo, qwen3.5, llama-3.3.",
    ),
    click.option(
        "--corpora",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder with the text of --sweep paper: uk.train.*, uk.valid.*, crh.train.*, crh.valid.*.",
    ),
    click.option(
        "--min-prob-of",
        "readings",
        type=click.Choice(["whole", "path"]),
        multiple=True,
        help="Reading of the minimum probability in --sweep paper, as for build-dict; may be repeated. By default "
        "whole, the paper's literal one.",
    ),
)


def sweep(
    name: str,
    out: Path | None,
    workers: int | None,
    tokenizers: Path | None,
    corpora: Path | None,
    readings: tuple[Any, ...],
    on_error: Any,
    text_field: str | None,
    as_json: bool,
) -> None:
    """Measure what is missing of a grid, and draw tables and plots of all of it."""
    from spectool.measure.emulate.sweep.report import REPORT, write_report
    from spectool.measure.emulate.sweep.results import RUNS
    from spectool.measure.emulate.sweep.runs import run_sweep
    from spectool.measure.emulate.sweep.tables import best_of, by_series

    if out is None:
        raise click.UsageError("--sweep writes a folder of results: name it with -o DIR")
    started = time.perf_counter()
    grid = _grid(name, tokenizers, corpora, readings)
    with tqdm(unit=" runs", desc="replaying", disable=None) as bar:

        def progress(done: int, total: int) -> None:
            if bar.total is None:
                bar.reset(total)
                bar.initial = bar.n = done  # what was measured before says nothing about the speed
            bar.update(done - bar.n)

        rows, measured = run_sweep(grid, out, workers or os.cpu_count() or 1, on_error, text_field, progress, say)
    files = write_report(rows, out)
    if files == [REPORT]:
        say("no plots without matplotlib: pip install 'spectool[report]', and run the same command again")
    facts: dict[str, Any] = {
        "path": str(out),
        "runs": len(rows),
        "measured": measured,
        "seconds": round(time.perf_counter() - started, 1),
        "files": [RUNS, *files],
    }
    best = [
        {"series": series, **row}
        for series, runs in by_series(rows).items()
        for row in best_of(runs)[["language", "tokenizer", "tokens_per_pass"]].to_dict("records")
    ]
    lines = [f"{b['tokens_per_pass']:.3f}  {b['language']}, {b['tokenizer']} ({b['series']})" for b in best]
    show(facts | {"best tokens per pass": best if as_json else lines}, as_json)


def _grid(name: str, tokenizers: Path | None, corpora: Path | None, readings: tuple[Any, ...]) -> Any:
    """Open the grid that --sweep names."""
    from spectool.measure.emulate.sweep.grid import read_grid
    from spectool.measure.emulate.sweep.paper import PAPER, paper_grid

    if name != PAPER:
        if tokenizers or corpora or readings:
            raise click.UsageError(f"--tokenizers, --corpora and --min-prob-of belong to --sweep {PAPER}")
        return read_grid(Path(name))
    if tokenizers is None or corpora is None:
        raise click.UsageError(f"--sweep {PAPER} needs --tokenizers DIR and --corpora DIR")
    return paper_grid(tokenizers, corpora, readings, say)
