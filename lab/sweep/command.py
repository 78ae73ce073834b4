"""The options of ``spectool emulate --sweep``, and what becomes of them."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from spectool.commands.console import show
from spectool.commands.options import together, under

OF_SWEEP = {"out", "workers", "tokenizers", "corpora", "readings"}
_grid = under("Grids of dictionaries")
sweep_options = together(
    _grid("--sweep", metavar="GRID", help="Build and replay a whole grid: `paper`, or a TOML file that describes it."),
    _grid(
        "-o",
        "--out",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder for what --sweep finds: runs.parquet, and a page as report.html and report.md. Runs that it has "
        "are not measured again.",
    ),
    _grid(
        "--workers",
        type=click.IntRange(1),
        help="Processes of --sweep, each of some 2 GB with a million n-grams; one for each core by default.",
    ),
    _grid(
        "--tokenizers",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder with the tokenizers of --sweep paper: gemma-3, mistral-7b-v0.1, mistral-nemo, qwen3.5, llama-3.3.",
    ),
    _grid(
        "--corpora",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder with the text of --sweep paper: uk.train.*, uk.valid.*, crh.train.*, crh.valid.*.",
    ),
    _grid(
        "--min-prob-of",
        "readings",
        type=click.Choice(["whole", "path"]),
        multiple=True,
        help="Reading of the minimum probability in --sweep paper, as for build-dict; may be repeated. By default "
        "whole, the paper's literal one.",
    ),
)
"""The options of a sweep, which ``emulate`` hands on to `sweep`."""


def sweep(asked: Any) -> None:
    """Measure what is missing of a grid, and draw tables and plots of all of it; ``asked`` has all options' values."""
    from spectool import require_extra

    require_extra("report", "--sweep")
    from spectool.lab.sweep.results import RUNS
    from spectool.lab.sweep.runs import run_sweep
    from spectool.lab.sweep.tables import best_of, by_series

    started = time.perf_counter()
    if asked.out is None:
        raise click.UsageError("--sweep writes a folder of results: name it with -o DIR")
    workers = asked.workers or os.cpu_count() or 1
    rows, measured = run_sweep(_grid_of(asked), asked.out, workers, **asked.reads)
    files = write_page(rows, asked.out)
    facts: dict[str, Any] = {
        "path": str(asked.out),
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
    show(facts | {"best tokens per pass": best if asked.as_json else lines}, asked.as_json)


def write_page(rows: Sequence[dict[str, Any]], out: Path) -> list[str]:
    """Write tables and plots of some runs into ``out``; return the files' names."""
    import pandas as pd

    from spectool.artifacts.atomic import renaming
    from spectool.lab.sweep import tables
    from spectool.lab.sweep.paper import figures
    from spectool.lab.sweep.plots import draw_all
    from spectool.lab.sweep.results import SCHEMA
    from spectool.measure.page import page_files

    series = tables.by_series(rows)
    plots = draw_all(series)
    runs = pd.DataFrame(rows, columns=SCHEMA.names)
    files = page_files("sweep.jinja", "Sweep", runs=runs, series=series, tables=tables, paper=figures(), plots=plots)
    for name, text in files.items():
        with renaming(out / name) as partial:
            partial.write_text(text, encoding="utf-8")
    return list(files)


def _grid_of(asked: Any) -> Any:
    """Open the grid that --sweep names."""
    from spectool.lab.sweep.grid import read_grid
    from spectool.lab.sweep.paper import PAPER, paper_grid

    if asked.sweep != PAPER:
        if asked.tokenizers or asked.corpora or asked.readings:
            raise click.UsageError(f"--tokenizers, --corpora and --min-prob-of belong to --sweep {PAPER}")
        return read_grid(Path(asked.sweep))
    if asked.tokenizers is None or asked.corpora is None:
        raise click.UsageError(f"--sweep {PAPER} needs --tokenizers DIR and --corpora DIR")
    return paper_grid(asked.tokenizers, asked.corpora, asked.readings)
