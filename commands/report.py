"""``spectool report``: a run as a page of tables and plots."""

from pathlib import Path
from typing import Any

import click

from spectool.commands.console import guarded, show
from spectool.commands.options import json_option


@click.command()
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for report.html, report.md and its plots; by default RUN-report beside the run.",
)
@click.option(
    "--texts",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Texts to show for each target and language, every token in the colour of where it came from.",
)
@json_option
@guarded
def report(run: Path, out: Path | None, texts: int, as_json: bool) -> None:
    """Draw tables and plots of a run that `spectool bench` saved, and say whether drafting pays.

    RUN is measured once and can be drawn again at any time: no model is loaded. report.html is one file
    that opens without a network; report.md has the same tables, with its plots beside it as SVG. Needs
    pip install 'spectool[report]'.

    \b
    Examples:
        spectool report polish.bench
        spectool report polish.bench --texts 5 -o ./page
    """
    from spectool import SpectoolError, require_extra

    require_extra("report", "spectool report")
    from spectool.artifacts.benchmark import Benchmark
    from spectool.commands.describe import needing_figures
    from spectool.measure.page import MARKDOWN
    from spectool.measure.report.compose import report_files, write_report
    from spectool.measure.report.summary import main_figures, verdicts
    from spectool.measure.report.trials import read_trials

    opened = Benchmark(run)
    with needing_figures(f"{run}: this run"):
        opened.check()  # of a stranger's run, cycles and generations may not belong together
        trials = read_trials(opened)
    folder = out or run.resolve().with_name(f"{run.resolve().name}-report")
    if folder.exists() and not (folder.is_dir() and (not any(folder.iterdir()) or (folder / MARKDOWN).is_file())):
        raise SpectoolError(f"{folder}: exists and is no report. Choose another -o")
    with needing_figures(f"{run}: this run"):
        files = report_files(trials, texts)
    write_report(files, folder)
    facts: dict[str, Any] = {
        "path": str(folder),
        "files": list(files) if as_json else ", ".join(files),
        "verdict": [verdict.sentence for verdict in verdicts(trials)],
    }
    show(facts | ({"configurations": main_figures(trials)} if as_json else {}), as_json)
