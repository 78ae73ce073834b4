"""Plots of a measurement: who gets which speed, and how fitness foretells acceptance. Needs matplotlib."""

from collections.abc import Mapping
from io import StringIO
from typing import Any

import matplotlib
from matplotlib.figure import Figure as Drawing

from spectool.artifacts.plot_style import COLOURS, MARKERS, STYLE, literal
from spectool.measure.fairness.verdict import PLAIN, speeds
from spectool.measure.report.page import Figure


def plots(figures: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the plots by name: ``speedup``, and ``fitness-DRAFT`` for every draft that has one."""
    found = {}
    with matplotlib.rc_context(STYLE):
        if any(len(speeds(figures, task)) > 1 for task in figures["tasks"]):
            found["speedup"] = Figure(
                "Expected speed against plain decoding (1), by task, with 95% intervals.", _svg(_speeds(figures))
            )
        for name, draft in figures["drafts"].items():
            if draft["compared"] != "text":
                caption = (
                    f"Fitness of {name} and its acceptance, by task. Bars reach r_p to either side of fitness: "
                    "acceptance lies within them (Theorem 2)."
                )
                found[f"fitness-{name}"] = Figure(caption, _svg(_fitness(draft)))
    return found


def _speeds(figures: Mapping[str, Any]) -> Drawing:
    tasks = list(figures["tasks"])
    names = [*figures["drafts"], *figures["dictionaries"]]
    by_task = {task: speeds(figures, task) for task in tasks}
    drawing = Drawing(figsize=(6.0, 1.3 + 0.5 * len(tasks)), layout="constrained")
    axes = drawing.subplots()
    axes.axvline(1, color="#666666", linewidth=1)
    axes.annotate(PLAIN, (1, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=8)
    for number, name in enumerate(names):
        shift = 0.5 * ((number + 0.5) / len(names) - 0.5)
        points = [(place, by_task[task][name]) for place, task in enumerate(tasks) if name in by_task[task]]
        axes.errorbar(
            [speed.value for _, speed in points],
            [place + shift for place, _ in points],
            xerr=[speed.reach for _, speed in points],
            fmt=MARKERS[number % len(MARKERS)],
            color=COLOURS[number % len(COLOURS)],
            markersize=5,
            label=literal(name),
        )
    axes.set_yticks(range(len(tasks)), [literal(task) for task in tasks])
    axes.set_ylim(len(tasks) - 0.5, -0.5)
    axes.set_xlabel("expected speed against plain decoding")
    drawing.legend(loc="outside lower center", ncols=min(4, len(names)))
    return drawing


def _fitness(draft: Mapping[str, Any]) -> Drawing:
    drawing = Drawing(figsize=(4.2, 3.4), layout="constrained")
    axes = drawing.subplots()
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
    for number, (task, at) in enumerate(draft["tasks"].items()):
        colour = COLOURS[number % len(COLOURS)]
        fitness = 1 - at["draft_misfit"]
        ends = [max(0.0, fitness - at["target_misfit"]), min(1.0, fitness + at["target_misfit"])]
        axes.plot([fitness, fitness], ends, color=colour, alpha=0.35, linewidth=4, solid_capstyle="butt")
        marker = MARKERS[number % len(MARKERS)]
        axes.plot(fitness, at["acceptance"], marker, color=colour, markersize=6, label=literal(task), linestyle="none")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("draft fitness 1 - r_q")
    axes.set_ylabel("acceptance alpha")
    axes.legend()
    return drawing


def _svg(drawing: Drawing) -> str:
    drawn = StringIO()
    drawing.savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue()
