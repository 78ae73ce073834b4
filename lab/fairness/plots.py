"""Plots of a measurement as SVG: who gets which speed, and how fitness foretells acceptance. Needs matplotlib."""

from collections.abc import Mapping
from typing import Any

from spectool.lab.fairness.verdict import PLAIN, speeds
from spectool.lab.plotting import drawn, literal, look_of


def draw_all(figures: Mapping[str, Any]) -> dict[str, str]:
    """Return the plots by name: ``speedup``, and ``fitness-DRAFT`` for every draft that has one."""
    found = {}
    if any(len(known) > 1 for known in speeds(figures).values()):
        found["speedup"] = _speeds(figures)
    compared = {name: draft for name, draft in figures["drafts"].items() if draft["compared"] != "text"}
    return found | {f"fitness-{name}": _fitness(draft) for name, draft in compared.items()}


def _speeds(figures: Mapping[str, Any]) -> str:
    by_task, names = speeds(figures), [*figures["drafts"], *figures["dictionaries"]]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.axvline(1, color="#666666", linewidth=1)
        axes.annotate(PLAIN, (1, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=8)
        for number, name in enumerate(names):
            shift = 0.5 * ((number + 0.5) / len(names) - 0.5)
            points = [(known[name], at + shift) for at, known in enumerate(by_task.values()) if name in known]
            x, arms = [speed.value for speed, _ in points], [speed.reach for speed, _ in points]
            look = {"linestyle": "none", **look_of(number)}
            axes.errorbar(x, [y for _, y in points], xerr=arms, markersize=5, label=literal(name), **look)
        axes.set_yticks(range(len(by_task)), [literal(task) for task in by_task])
        axes.set(ylim=(len(by_task) - 0.5, -0.5), xlabel="expected speed against plain decoding")
        figure.legend(loc="outside lower center", ncols=min(4, len(names)))

    return drawn(6.0, 1.3 + 0.5 * len(by_task), draw)


def _fitness(draft: Mapping[str, Any]) -> str:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
        for number, (task, at) in enumerate(draft["tasks"].items()):
            look = {"linestyle": "none", **look_of(number)}
            fitness, misfit = 1 - at["draft_misfit"], at["target_misfit"]
            ends = [max(0.0, fitness - misfit), min(1.0, fitness + misfit)]
            axes.plot([fitness, fitness], ends, color=look["color"], alpha=0.35, linewidth=4, solid_capstyle="butt")
            axes.plot(*zip(*at["examples"], strict=True), ".", color=look["color"], alpha=0.25, markersize=3)
            axes.plot(fitness, at["acceptance"], markersize=6, label=literal(task), **look)
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="draft fitness 1 - r_q", ylabel="acceptance alpha")
        axes.legend()

    return drawn(4.2, 3.4, draw)
