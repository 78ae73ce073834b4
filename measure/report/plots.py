"""Plots of a run as SVG: speed-up by way, by acceptance, tokens per pass, time of a cycle."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from statistics import fmean
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import PercentFormatter

from spectool.artifacts.plot_style import COLOURS, MARKERS, STYLE, literal
from spectool.measure.intervals import mean_interval
from spectool.measure.report.costs import cycle_seconds, plain_step
from spectool.measure.report.cycles import Cycles, expected_tokens
from spectool.measure.report.page import Figure
from spectool.measure.report.tables import break_even_of
from spectool.measure.report.trials import Trial, Trials, Way, chosen, pooled_tokens_per_pass

_WIDTH = 6.5  # inches


def speedups(trials: Trials) -> Figure:
    """Speed-up of every way with its interval, a mark for each model and language."""
    labels = list(dict.fromkeys(way.label for way in trials.ways))
    with _canvas(_WIDTH, 0.9 + 0.13 * len(labels) * max(2, len(trials.scopes))) as (canvas, svg):
        axes = canvas.subplots()
        for number, (model, language) in enumerate(trials.scopes):
            here = chosen(trials.drafted, None, model, language)
            shift = 0.6 * ((number + 0.5) / len(trials.scopes) - 0.5)
            for way in dict.fromkeys(trial.way for trial in here):
                found = mean_interval([trial.speedup for trial in chosen(here, way)])
                arm = 0.0 if found.high is None else found.high - found.value
                axes.errorbar(
                    found.value, labels.index(way.label) + shift, xerr=arm, fmt=MARKERS[number % 8],
                    color=COLOURS[number % 8], elinewidth=1, markersize=4,
                )  # fmt: skip
            name = literal(trials.scope_name(model, language))
            axes.plot([], [], MARKERS[number % 8], color=COLOURS[number % 8], markersize=4, label=name)
        axes.axvline(1, color="#444444", linewidth=1, linestyle="--")
        axes.set_yticks(range(len(labels)), map(literal, labels))
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_xlabel("speed-up (1: as fast as plain decoding)")
        if len(trials.scopes) > 1:
            canvas.legend(loc="outside upper center", ncols=3)
    return Figure("Speed-up of every way with its 95% interval; to the right of the dashed line drafting pays.", svg())


def by_acceptance(trials: Trials) -> list[Figure]:
    """Acceptance against speed-up, a point for each prompt; for every drafter the strategy that is fastest."""
    found = []
    for model in trials.models:
        lengths = sorted({way.k for way in trials.ways if way.model == model and way.k})
        names = _fastest_strategies(trials, model)
        if not lengths:
            continue
        with _canvas(_WIDTH, 3.4) as (canvas, svg):
            panels = canvas.subplots(1, len(lengths), sharey=True, sharex=True, squeeze=False)[0]
            for panel, k in zip(panels, lengths, strict=True):
                for number, name in enumerate(names):
                    some = [t for t in chosen(trials.drafted, model=model) if (t.way.name, t.way.k) == (name, k)]
                    _cloud(panel, [trial for trial in some if trial.acceptance is not None], number, name)
                panel.axhline(1, color="#444444", linewidth=1, linestyle="--")
                panel.set_title(f"k = {k}", fontsize=9)
                panel.set_xlabel("acceptance")
                panel.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            panels[0].set_ylabel("speed-up")
            handles, texts = panels[0].get_legend_handles_labels()
            canvas.legend(handles, texts, loc="outside lower center", ncols=3)
        caption = (
            "Each point is a prompt: its acceptance and its speed-up, with the least-squares line of each drafter (in "
            "its fastest strategy). Where a line meets the dashed one is the drafter's break-even."
        )
        found.append(Figure(caption + trials.here(model), svg()))
    return found


def against_geometric(trials: Trials, cycles: Mapping[Way, Sequence[Cycles]]) -> Figure:
    """Tokens per pass, measured against the geometric expectation."""
    pairs = {way: (expected_tokens(cycles.get(way, ())), pooled_tokens_per_pass(chosen(trials.drafted, way)))
             for way in trials.ways}  # fmt: skip
    names = list(dict.fromkeys(way.drafter for way in trials.ways))
    with _canvas(5.0, 4.0) as (canvas, svg):
        axes = canvas.subplots()
        for number, name in enumerate(names):
            points = [pair for way, pair in pairs.items() if way.drafter == name and pair[0] is not None]
            if points:
                axes.plot(
                    *zip(*points, strict=True), MARKERS[number % 8], color=COLOURS[number % 8],
                    label=literal(name), linestyle="none",
                )  # fmt: skip
        ends = [1.0, max(max(expected or 1, measured) for expected, measured in pairs.values()) + 0.1]
        axes.plot(ends, ends, color="#444444", linewidth=1, linestyle="--")
        axes.set_xlabel("geometric expectation, tokens per pass")
        axes.set_ylabel("measured, tokens per pass")
        axes.legend()
    return Figure(
        "Tokens per pass of every way against the geometric expectation: below the dashed line right guesses come in "
        "runs, above it the later tokens of a draft are the worse ones.",
        svg(),
    )


def cycle_times(trials: Trials) -> list[Figure]:
    """The time of a cycle by draft length, stacked; for every drafter the strategy that is fastest."""
    found = []
    for model in trials.models:
        names = set(_fastest_strategies(trials, model))
        ways = [way for way in trials.ways if way.model == model and way.name in names]
        of_way = [chosen(trials.drafted, way) for way in ways]
        parts = np.array([cycle_seconds(some) for some in of_way]) * 1000
        marks = [1000 * pooled_tokens_per_pass(some) * plain_step(trials, some) for some in of_way]
        with _canvas(_WIDTH, 1.1 + 0.24 * len(ways)) as (canvas, svg):
            axes = canvas.subplots()
            left = np.zeros(len(ways))
            for number, name in enumerate(("drafting", "target's pass", "rest")):
                axes.barh(range(len(ways)), parts[:, number], left=left, color=COLOURS[number], label=name, height=0.7)
                left += parts[:, number]
            axes.plot(marks, range(len(ways)), "|", color="#000000", markersize=12, markeredgewidth=2,
                      label="plain decoding, same tokens")  # fmt: skip
            axes.set_yticks(range(len(ways)), [literal(way.label) for way in ways])
            axes.set_ylim(len(ways) - 0.4, -0.6)
            axes.set_xlabel("milliseconds of a cycle")
            axes.grid(axis="y", visible=False)
            canvas.legend(loc="outside upper center", ncols=4)
        caption = (
            "What a cycle takes and where. The black mark is what plain decoding of the same prompts takes for the "
            "tokens that the cycle commits: a bar that ends before its mark is faster than plain decoding."
        )
        found.append(Figure(caption + trials.here(model), svg()))
    return found


def _cloud(panel: Any, some: Sequence[Trial], number: int, name: str) -> None:
    colour = COLOURS[number % 8]
    alpha = [trial.acceptance for trial in some if trial.acceptance is not None]
    panel.plot(
        alpha, [trial.speedup for trial in some], MARKERS[number % 8], color=colour, label=literal(name),
        linestyle="none", markersize=3.5, alpha=0.6,
    )  # fmt: skip
    found = break_even_of(some)
    if found is not None:
        ends = np.array([min(alpha), max(alpha)])
        panel.plot(ends, (found.line.a + found.line.b * ends) / found.baseline, color=colour)


def _fastest_strategies(trials: Trials, model: str) -> list[str]:
    """Return the name of each drafter with the strategy whose mean speed-up is best over its draft lengths."""
    drafters: dict[str, dict[str, list[float]]] = {}
    for trial in chosen(trials.drafted, model=model):
        drafters.setdefault(trial.way.drafter, {}).setdefault(trial.way.name, []).append(trial.speedup)
    means = [{name: fmean(values) for name, values in names.items()} for names in drafters.values()]
    return [max(names, key=names.__getitem__) for names in means]


@contextmanager
def _canvas(width: float, height: float) -> Iterator[tuple[Canvas, Any]]:
    """Give a figure, and a function that returns it as SVG, the same for the same run."""
    with matplotlib.rc_context(STYLE):
        canvas = Canvas(figsize=(width, height), layout="constrained")

        def svg() -> str:
            with matplotlib.rc_context(STYLE):
                out = BytesIO()
                canvas.savefig(out, format="svg", metadata={"Date": None})
            return out.getvalue().decode()

        yield canvas, svg
