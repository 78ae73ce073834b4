"""The command ``sweep``."""

import time
from pathlib import Path

import click

from spectool.commands.shared.console import show
from spectool.commands.shared.options import command, option
from spectool.measure.table import table


@command("sweep")
@click.argument("grid", type=click.Path(path_type=Path))
@option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder of runs.parquet. Runs that it already has are not measured again.",
)
def sweep(grid: Path, out: Path, as_json: bool) -> None:
    """Build and replay a grid of dictionaries; print the best of each kind, and keep all runs.

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
    from spectool.lab.sweep.grid import read_grid
    from spectool.lab.sweep.results import RUNS, best_by_series
    from spectool.lab.sweep.runs import run_sweep

    started = time.perf_counter()
    rows, measured = run_sweep(read_grid(grid), out)
    facts = {
        "runs": len(rows),
        "measured": measured,
        "seconds": round(time.perf_counter() - started, 1),
        "path": str(out / RUNS),
    }
    best = best_by_series(rows)
    if as_json:
        show({**facts, "best": best}, as_json)
        return
    show(facts, as_json)
    series = list(dict.fromkeys(name for pair in best for name in pair["tokens_per_pass"]))
    lines = [
        [pair["language"], pair["tokenizer"], f"{pair['fertility']:.2f}"]
        + [f"{pair['tokens_per_pass'][name]:.3f}" if name in pair["tokens_per_pass"] else "" for name in series]
        for pair in best
    ]
    click.echo("\nBest tokens per pass:\n" + table(["language", "tokenizer", "tokens per word", *series], lines))
