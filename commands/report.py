"""The command ``report``: the page of a saved run."""

from pathlib import Path
from typing import Any

import click

from spectool.commands.shared.console import guarded, show
from spectool.commands.shared.options import json_option


@click.command()
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for report.html and report.md; RUN-report by default.",
)
@json_option
@guarded
def report(run: Path, out: Path | None, as_json: bool) -> None:
    """Write the page of a saved `spectool bench` run again, and say whether drafting pays.

    `spectool bench` writes the same page when it ends. No model is loaded.

    \b
    Example:
        spectool report polish.bench -o ./page
    """
    from spectool.artifacts.benchmark import Benchmark
    from spectool.commands.shared.describe import needing_figures
    from spectool.measure.report.run_page import page_folder, write_run_page
    from spectool.measure.report.trials import read_trials
    from spectool.measure.report.verdicts import verdicts

    opened = Benchmark(run)
    with needing_figures(f"{run}: this run"):
        opened.check()  # in a run from elsewhere, cycles and generations may not belong together
        trials = read_trials(opened)
    folder = page_folder(run, out)
    with needing_figures(f"{run}: this run"):
        files = write_run_page(trials, folder)
    facts: dict[str, Any] = {
        "path": str(folder),
        "files": files if as_json else ", ".join(files),
        "verdict": [verdict.sentence for verdict in verdicts(trials)],
    }
    show(facts | ({"configurations": [one.figures() for one in trials.results]} if as_json else {}), as_json)
