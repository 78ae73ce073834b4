"""The whole report of a run: what its template names, and its files."""

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from spectool.artifacts.atomic import naming
from spectool.measure.page import MARKDOWN, page_files
from spectool.measure.report import costs, plots, summary, tables, target_text
from spectool.measure.report.trials import PROMPT, Frame, Trials
from spectool.measure.sample_size import ENOUGH, FEWEST, LEAST

_LINKED = re.compile(r"\(<(figure-\d+\.svg)>\)")
_TABLES: tuple[Callable[[Trials], Any], ...] = (
    *(tables.speed, tables.rates, tables.languages, tables.acceptance, tables.draft_length),
    *(tables.by_temperature, tables.by_bits, tables.by_place, tables.by_position),
    *(tables.buckets, tables.break_evens, tables.tokens_per_pass, tables.sources, tables.differences),
    *(costs.cost_model, costs.time_spent, costs.energy, target_text.repetition),
)
_PLOTS: tuple[Callable[[Trials], Any], ...] = (
    *(plots.speedups, plots.by_acceptance, plots.cycle_times, plots.against_geometric),
)


def report_files(trials: Trials, texts: int = 1) -> dict[str, str]:
    """Lay out everything that a run shows: the page's files by name.

    Args:
        trials: What it measured.
        texts: Texts to show for each target and language.
    """
    arguments, answers = trials.run.manifest.arguments, summary.answers(trials)
    greedy = trials.drafted.temperature == 0
    return page_files(
        "report.jinja",
        f"{arguments.get('name') or trials.run.path.name}: does drafting pay?",
        answers=answers,
        arguments=arguments,
        statistics={"machine": {}, "sizes": {}, "draft_sizes": {}, "power": {}, **trials.run.manifest.statistics},
        temperatures=[f"{temperature:g}" for temperature in sorted(trials.plain.temperature.unique())],
        prompts={model: _prompts(some) for model, some in trials.plain.groupby("model", sort=False)},
        repetitions=int(trials.plain.repetitions.max()),
        left_out=trials.left_out,
        size=costs.size,
        drawn=not greedy.all(),
        outputs=int(trials.drafted.outputs[greedy].sum()),
        limits={"least": LEAST, "fewest": FEWEST, "enough": ENOUGH, "near_tie": tables.NEAR_TIE},
        samples=target_text.samples(trials, answers, texts),
        picture=target_text.picture,
        tables={make.__name__: make(trials) for make in _TABLES},
        plots={make.__name__: make(trials) for make in _PLOTS},
    )


def write_report(files: dict[str, str], folder: Path) -> None:
    """Write the files of a page into ``folder``, all of them or none; plots of an earlier page there go.

    Raises:
        ArtifactError: There is no room.
    """
    page = folder / MARKDOWN
    earlier = set(_LINKED.findall(page.read_text(encoding="utf-8", errors="replace"))) if page.is_file() else set()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with naming(folder), TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        for name, text in files.items():
            (Path(scratch) / name).write_text(text, encoding="utf-8")
        folder.mkdir(exist_ok=True)
        for name in files:
            (Path(scratch) / name).replace(folder / name)
    for name in earlier - set(files):
        (folder / name).unlink(missing_ok=True)


def _prompts(plain: Frame) -> list[str]:
    """Say how many prompts of which kinds there are in each language."""
    some = plain.drop_duplicates(PROMPT[2:]).groupby("language", sort=False)
    return [f"{len(seen)} in {language} ({', '.join(seen.kind.unique())})" for language, seen in some]
