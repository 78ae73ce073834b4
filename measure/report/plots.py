"""Plots of a run as SVG: speed-up by configuration, by acceptance, tokens per pass, time of a cycle."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import PercentFormatter

from spectool.measure.intervals import geometric_mean
from spectool.measure.page import drawn
from spectool.measure.plot_style import COLOURS, literal, look_of
from spectool.measure.report.costs import cycle_seconds, plain_step
from spectool.measure.report.tables import break_even_of, expected_tokens, speedup
from spectool.measure.report.trials import Frame, Trials, by_model, pooled_tokens_per_pass

_WIDTH = 6.5  # inches
_DASHED = {"color": "#444444", "linewidth": 1, "linestyle": "--"}


def speedups(trials: Trials) -> str:
    """Speed-up of every configuration with its interval, a mark for each target and language."""
    labels, scopes = list(trials.drafted.label.unique()), trials.drafted.groupby("scope", sort=False)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, (name, here) in enumerate(scopes):
            look = look_of(number)
            shift = 0.6 * ((number + 0.5) / len(scopes) - 0.5)
            for label, some in here.groupby("label"):
                value, low, high, _ = speedup(some)
                arms = None if low is None or high is None else [[value - low], [high - value]]
                axes.errorbar(value, labels.index(label) + shift, xerr=arms, elinewidth=1, markersize=4, **look)
            axes.plot([], [], markersize=4, label=literal(name), **look)
        axes.axvline(1, **_DASHED)
        _rows(axes, labels)
        axes.set_xlabel("speed-up (1: as fast as plain decoding)")
        if len(scopes) > 1:
            figure.legend(loc="outside upper center", ncols=3)

    return drawn(_WIDTH, 0.9 + 0.13 * len(labels) * max(2, len(scopes)), draw)


def by_acceptance(trials: Trials) -> dict[str, str]:
    """Acceptance against speed-up, a point for each prompt; for every drafter the strategy that is fastest."""

    def plot(here: Frame) -> str:
        fixed = _fastest_strategies(here)
        fixed = fixed[fixed.k.notna()]
        names, lengths = fixed.name.unique(), sorted(fixed.k.astype(int).unique())

        def draw(figure: Any) -> None:
            panels = figure.subplots(1, len(lengths), sharey=True, sharex=True, squeeze=False)[0]
            for panel, k in zip(panels, lengths, strict=True):
                for number, name in enumerate(names):
                    _cloud(panel, fixed[(fixed.name == name) & (fixed.k == k) & fixed.acceptance.notna()], number, name)
                panel.axhline(1, **_DASHED)
                panel.set_title(f"k = {k}", fontsize=9)
                panel.set_xlabel("acceptance")
                panel.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            panels[0].set_ylabel("speed-up")
            figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)

        return drawn(_WIDTH, 3.4, draw) if lengths else ""

    return {here: svg for here, svg in by_model(trials.drafted, plot).items() if svg}


def against_geometric(trials: Trials) -> str:
    """Tokens per pass, measured against the geometric expectation; nothing where nothing was drafted."""
    expected = pd.Series({row: expected_tokens(cycles) for row, cycles in trials.cycles_by_row.items()}, dtype=float)
    measured = trials.drafted.groupby("row", sort=False).apply(pooled_tokens_per_pass)
    points = pd.DataFrame({"x": expected, "y": measured, "drafter": trials.drafted.groupby("row").drafter.first()})
    points = points.loc[measured.index].dropna()

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, (name, some) in enumerate(points.groupby("drafter", sort=False)):
            axes.plot(some.x, some.y, linestyle="none", label=literal(name), **look_of(number))
        ends = [1.0, points[["x", "y"]].max().max() + 0.1]
        axes.plot(ends, ends, **_DASHED)
        axes.set_xlabel("geometric expectation, tokens per pass")
        axes.set_ylabel("measured, tokens per pass")
        axes.legend()

    return "" if points.empty else drawn(5.0, 4.0, draw)


def cycle_times(trials: Trials) -> dict[str, str]:
    """The time of a cycle by draft length, stacked; for every drafter the strategy that is fastest."""

    def plot(here: Frame) -> str:
        groups = dict(list(_fastest_strategies(here).groupby("label", sort=False)))
        parts = pd.DataFrame([cycle_seconds(some) for some in groups.values()]) * 1000
        marks = [1000 * pooled_tokens_per_pass(some) * plain_step(trials, some) for some in groups.values()]
        places = range(len(groups))

        def draw(figure: Any) -> None:
            axes = figure.subplots()
            left = np.zeros(len(groups))
            for number, name in enumerate(parts):
                axes.barh(places, parts[name], left=left, color=COLOURS[number], label=name, height=0.7)
                left += parts[name].to_numpy()
            look = {"color": "#000000", "markersize": 12, "markeredgewidth": 2}
            axes.plot(marks, places, "|", label="plain decoding, same tokens", **look)
            _rows(axes, list(groups))
            axes.set_xlabel("milliseconds of a cycle")
            axes.grid(axis="y", visible=False)
            figure.legend(loc="outside upper center", ncols=4)

        return drawn(_WIDTH, 1.1 + 0.24 * len(groups), draw)

    return by_model(trials.drafted, plot)


def _rows(axes: Any, labels: list[str]) -> None:
    axes.set_yticks(range(len(labels)), [literal(label) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)


def _cloud(panel: Any, some: Frame, number: int, name: str) -> None:
    look = look_of(number)
    panel.plot(some.acceptance, some.speedup, linestyle="none", markersize=3.5, alpha=0.6, label=literal(name), **look)
    found = break_even_of(some)
    if found is not None:
        ends = np.array([some.acceptance.min(), some.acceptance.max()])
        panel.plot(ends, (found.line.a + found.line.b * ends) / found.baseline, color=look["color"])


def _fastest_strategies(here: Frame) -> Frame:
    """Return the trials of each drafter with the strategy whose mean speed-up is best over its draft lengths."""
    means = here.groupby(["drafter", "name"], sort=False).speedup.agg(geometric_mean)
    return here[here.name.isin({name for _, name in means.groupby("drafter", sort=False).idxmax()})]
