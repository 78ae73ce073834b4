"""The page of a run: the verdict first, then one table, a plot, and what the figures depend on."""

from collections.abc import Sequence
from pathlib import Path

from spectool import SpectoolError
from spectool.measure.intervals import ENOUGH_PROMPTS, FEWEST, LEAST
from spectool.measure.page import MARKDOWN, NO_FIGURE, PageTable, cell, page_files, save_page
from spectool.measure.report.plots import speedup_plot
from spectool.measure.report.trials import Trials
from spectool.measure.report.verdicts import RunVerdict, verdicts

_NEAR_TIE = 0.125  # step between neighbouring bfloat16 numbers from 16 to 32, where the best logits often lie


def page_folder(run: Path, out: Path | None = None) -> Path:
    """Where the page of a run goes: ``out``, or by default ``RUN-report`` next to the run.

    Raises:
        SpectoolError: Something other than a page is there.
    """
    folder = out or run.resolve().with_name(f"{run.resolve().name}-report")
    if folder.exists() and not (folder.is_dir() and (not any(folder.iterdir()) or (folder / MARKDOWN).is_file())):
        raise SpectoolError(f"{folder}: exists and is not a report. Choose another -o")
    return folder


def run_page(trials: Trials) -> dict[str, str]:
    """The files of a run's page by name."""
    arguments, statistics = trials.run.manifest.arguments, trials.run.manifest.statistics
    found = verdicts(trials)
    compared = [one for one in trials.results if one.temperature == 0]
    gaps = [gap for one in compared for gap in one.gaps]
    return page_files(
        "report.jinja",
        f"{arguments.get('name') or trials.run.path.name}: does drafting pay?",
        verdicts=found,
        commands=[verdict.command(arguments) for verdict in found],
        table=summary_table(found),
        speedups=speedup_plot(found),
        arguments=arguments,
        statistics=statistics,
        temperatures=[f"{temperature:g}" for temperature in sorted({one.temperature for one in trials.results})],
        drawn=len(compared) < len(trials.results),
        outputs=sum(one.outputs for one in compared),
        different=len(gaps),
        near_ties=sum(gap <= _NEAR_TIE for gap in gaps),
        largest_gap=max(gaps, default=0.0),
        left_out=trials.left_out,
        limits={"least": LEAST, "fewest": FEWEST, "enough": ENOUGH_PROMPTS, "near_tie": _NEAR_TIE},
        size=size,
    )


def summary_table(found: Sequence[RunVerdict]) -> PageTable:
    """One row for each configuration in each scope; a speed-up without an interval is left out, as it may mislead."""
    several, translated = len(found) > 1, any(one.strategy for verdict in found for one in verdict.results)
    names = ["where"] * several + ["drafter"] + ["strategy"] * translated + ["k"]
    rows = []
    for verdict in found:
        for one in verdict.results:
            speedup, length = one.speedup, one.num_draft_tokens
            row = [verdict.scope] * several + [one.drafter] + [one.strategy or ""] * translated
            row += ["auto" if length is None else str(length)]
            row += [NO_FIGURE, ""] if speedup.low is None else [cell(speedup.value), speedup.ends]
            row += [cell(one.acceptance, ".0%"), cell(one.tokens_per_pass), cell(sum(one.cycle.values()))]
            rows.append([*row, str(speedup.n)])
    figures = ["speed-up", "95% interval", "acceptance", "tokens per pass", "plain steps per pass", "prompts"]
    return PageTable([*names, *figures], rows, len(names))


def write_run_page(trials: Trials, folder: Path) -> list[str]:
    """Write the page of a run into ``folder``; the names of its files.

    Raises:
        ArtifactError: There is no room.
    """
    files = run_page(trials)
    save_page(files, folder)
    return list(files)


def size(count: float | None) -> str:
    """Bytes as text.

    >>> size(11_320_000_000), size(2_500_000), size(None)
    ('11.3 GB', '2.5 MB', '—')
    """
    if not count:
        return NO_FIGURE
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
