"""The whole report of a run: its sections in their order, and its files."""

import os
import re
from pathlib import Path

from spectool.artifacts.formats.benchmark import Benchmark
from spectool.artifacts.replacing import naming
from spectool.measure.report import costs, passes, plots, summary, tables
from spectool.measure.report.cycles import read_cycles
from spectool.measure.report.page import Figure, Section, html, markdown
from spectool.measure.report.trials import Trials

HTML, MARKDOWN = "report.html", "report.md"
_LINKED = re.compile(r"\(<(figure-\d+\.svg)>\)")


def sections(run: Benchmark, trials: Trials) -> list[Section]:
    """Lay out everything that a run can tell."""
    arguments, statistics = run.manifest.arguments, run.manifest.statistics
    cycles = read_cycles(run, trials.left_out)
    found = [
        _with(summary.answer(trials), plots.speedups(trials)),
        summary.measured(trials, arguments, statistics),
        tables.speed(trials),
        tables.languages(trials),
        tables.acceptance(trials),
        tables.draft_length(trials),
        _with(tables.buckets(trials), *plots.by_acceptance(trials)),
        tables.break_evens(trials),
        costs.cost_model(trials, statistics.get("sizes", {}), statistics.get("draft_sizes", {})),
        _with(costs.time_spent(trials), *plots.cycle_times(trials)),
        _with(passes.tokens_per_pass(trials, cycles), plots.against_geometric(trials, cycles)),
        passes.sources(trials, cycles),
        costs.energy(trials, statistics.get("power", {})),
        passes.differences(trials),
    ]
    return [section for section in found if section is not None]


def write_report(run: Benchmark, trials: Trials, folder: Path) -> list[str]:
    """Write the page, its Markdown and the plots of the latter into ``folder``, all of them or none.

    Plots that an earlier page there has and this one has not are removed.

    Returns:
        Names of the files.

    Raises:
        ArtifactError: There is no room.
    """
    title = f"{run.manifest.arguments.get('name') or run.path.name}: does drafting pay?"
    parts = sections(run, trials)
    figures = [part for section in parts for part in section.parts if isinstance(part, Figure)]
    files = {HTML: html(title, parts), MARKDOWN: markdown(title, parts, lambda figure, number: _name(number))}
    files |= {_name(number): figure.svg for number, figure in enumerate(figures, 1)}
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    earlier = _figures_of(folder / MARKDOWN)
    partials = {name: folder / f".{name}.{os.getpid()}.partial" for name in files}
    try:
        with naming(folder):
            for name, text in files.items():
                partials[name].write_text(text, encoding="utf-8")
            for name, partial in partials.items():
                partial.replace(folder / name)
    finally:
        for partial in partials.values():
            partial.unlink(missing_ok=True)
        if made and not any(folder.iterdir()):
            folder.rmdir()
    for name in earlier - set(files):
        (folder / name).unlink(missing_ok=True)
    return list(files)


def _with(section: Section, *figures: Figure) -> Section:
    """Put figures before the tables of a section."""
    return Section(section.title, section.text, [*figures, *section.parts])


def _figures_of(page: Path) -> set[str]:
    """Return the files of the plots of an earlier page; none where there is none."""
    return set(_LINKED.findall(page.read_text(encoding="utf-8", errors="replace"))) if page.is_file() else set()


def _name(number: int) -> str:
    return f"figure-{number}.svg"
