"""The command ``sweep``."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from spectool.commands.console import guarded, show
from spectool.commands.options import json_option, text_options


@click.command()
@click.argument("grid", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder of results: runs.parquet, and a page as report.html and report.md. Runs that it already has are not "
    "measured again.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Number of processes, each of about 4 GB with a million n-grams; one for each core by default.",
)
@text_options
@json_option
@guarded
def sweep(
    grid: Path,
    out: Path,
    workers: int | None,
    reads: dict[str, Any],
    as_json: bool,
) -> None:
    """Build and replay a grid of dictionaries, and draw tables and plots of all of it.

    GRID is a TOML file that names tokenizers and languages. What it leaves out is as in the DictSpec paper, so these
    alone make a grid of 90 runs for each pair:

    \b
        num_draft_tokens = [8]
        replay_tokens = 0              # of each text; 0: all
        [tokenizers]
        "qwen2.5" = "./Qwen2.5-1.5B"   # as --tokenizer
        [languages.pl]
        build = "wiki-pl.txt"          # as --corpus
        replay = "news-pl.txt"
        [dictspec]
        readings = ["whole", "path"]   # what min_prob is the probability of
        orders = ["n1", "n12", "n123"] # n-grams of one word, up to two, up to three
        entries = [10_000, 200_000]    # number of n-grams to take, the most frequent ones
        min_prob = [0.2, 0.8]

    \b
    Example:
        spectool lab sweep grid.toml -o results
    """
    from spectool import require_extra

    require_extra("lab", "spectool lab sweep")
    from spectool.lab.sweep.grid import read_grid
    from spectool.lab.sweep.results import RUNS
    from spectool.lab.sweep.runs import run_sweep
    from spectool.lab.sweep.tables import best_of, by_series

    started = time.perf_counter()
    rows, measured = run_sweep(read_grid(grid), out, workers or os.cpu_count() or 1, **reads)
    files = write_page(rows, out)
    best = [
        {"series": series, **row}
        for series, runs in by_series(rows).items()
        for row in best_of(runs)[["language", "tokenizer", "tokens_per_pass"]].to_dict("records")
    ]
    lines = [f"{b['tokens_per_pass']:.3f}  {b['language']}, {b['tokenizer']} ({b['series']})" for b in best]
    facts = {
        "path": str(out),
        "runs": len(rows),
        "measured": measured,
        "seconds": round(time.perf_counter() - started, 1),
        "files": [RUNS, *files],
        "best tokens per pass": best if as_json else lines,
    }
    show(facts, as_json)


def write_page(rows: Sequence[dict[str, Any]], out: Path) -> list[str]:
    """Write tables and plots of runs into ``out``; return the names of the files."""
    import pandas as pd

    from spectool.artifacts.atomic import atomic_file
    from spectool.lab.sweep import tables
    from spectool.lab.sweep.plots import sweep_plots
    from spectool.lab.sweep.results import SCHEMA
    from spectool.measure.page import page_files

    series = tables.by_series(rows)
    plots = sweep_plots(series)
    runs = pd.DataFrame(rows, columns=SCHEMA.names)
    files = page_files(
        "sweep.jinja", "Sweep", runs=runs, series=series, tables=tables, paper=tables.figures(), plots=plots
    )
    for name, text in files.items():
        with atomic_file(out / name) as partial:
            partial.write_text(text, encoding="utf-8")
    return list(files)
