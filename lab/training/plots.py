"""The curves of a training as plots, in SVG and PNG."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from spectool.lab.plotting import COLOURS, STYLE
from spectool.lab.training.curves import Point

_STRETCHES = 400
_OF_ALL = "#444444"  # not one of the tasks


def plot_curve(points: Sequence[Point], folder: Path) -> None:
    """Draw loss and held-out bits per byte over tokens: ``curve.svg`` and ``curve.png``."""
    step_tokens = points[0].tokens / points[0].step
    with matplotlib.rc_context({**STYLE, "axes.spines.right": True}):  # a second axis stands there
        figure = Figure(figsize=(5.2, 3.2), layout="constrained")
        axes = figure.subplots()
        steps, losses = means(points, _STRETCHES)
        axes.plot(steps * step_tokens, losses, color=COLOURS[0])
        axes.set_xlabel("tokens trained on")
        axes.set_ylabel("training loss, nats per token", color=COLOURS[0])
        measured = [(point.tokens, point.bits_per_byte) for point in points if point.bits_per_byte is not None]
        other = axes.twinx()
        other.grid(visible=False)
        other.plot(*zip(*measured, strict=True), "o-", color=COLOURS[1], markersize=4)
        other.set_ylabel("held out, bits per byte", color=COLOURS[1])
        _save(figure, folder, "curve")


def means(points: Sequence[Point], most: int) -> NDArray[np.float64]:
    """Return step and loss, each the mean of a stretch of steps, ``[2, stretches]``: at most ``most`` of one length."""
    stretches = np.array_split([(point.step, point.loss) for point in points], min(most, len(points)))
    return np.array([stretch.mean(axis=0) for stretch in stretches]).T


def plot_tasks(points: Sequence[Any], folder: Path) -> None:
    """Draw rows of ``tasks.parquet`` over steps, divergence and so on of every task: ``tasks.svg``, ``tasks.png``."""
    panels = {"divergence": "D, nats per token", "acceptance": "acceptance", "unfairness": "unfairness U, nats²"}
    shown = {name: label for name, label in panels.items() if getattr(points[0], name) is not None}
    tasks = list(dict.fromkeys(point.task for point in points))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.4 * len(shown), 3.0), layout="constrained")
        axes = figure.subplots(1, len(shown), squeeze=False)[0]
        for panel, (name, label) in zip(axes, shown.items(), strict=True):
            of_all = name == "unfairness"
            for number, task in enumerate(tasks[:1] if of_all else tasks):
                line = [(point.step, getattr(point, name)) for point in points if point.task == task]
                colour = _OF_ALL if of_all else COLOURS[number % len(COLOURS)]
                panel.plot(*zip(*line, strict=True), "o-", markersize=3, color=colour, label=task)
            panel.set(xlabel="steps", ylabel=label)
        axes[0].legend()
        _save(figure, folder, "tasks")


def _save(figure: Figure, folder: Path, name: str) -> None:
    for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
        figure.savefig(folder / f"{name}.{kind}", dpi=200, metadata=metadata)
