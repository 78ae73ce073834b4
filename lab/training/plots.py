"""The curves of a training as SVG."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool.lab.plotting import COLOURS, drawn
from spectool.lab.training.curves import Point

_STRETCHES = 400
_OF_ALL = "#444444"  # the colour of what is of all tasks


def curve_plot(points: Sequence[Point]) -> str:
    """Loss and held-out bits per byte over tokens."""
    step_tokens = points[0].tokens / points[0].step
    measured = [(point.tokens, point.bits_per_byte) for point in points if point.bits_per_byte is not None]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        steps, losses = means_of_stretches(points, _STRETCHES)
        axes.plot(steps * step_tokens, losses, color=COLOURS[0])
        axes.set_xlabel("tokens trained on")
        axes.set_ylabel("training loss, nats per token", color=COLOURS[0])
        other = axes.twinx()
        other.spines.right.set_visible(True)
        other.grid(visible=False)
        other.plot(*zip(*measured, strict=True), "o-", color=COLOURS[1], markersize=4)
        other.set_ylabel("held out, bits per byte", color=COLOURS[1])

    return drawn(5.2, 3.2, draw)


def means_of_stretches(points: Sequence[Point], most: int) -> NDArray[np.float64]:
    """Mean step and loss of at most ``most`` stretches of equal length, ``[2, stretches]``."""
    stretches = np.array_split([(point.step, point.loss) for point in points], min(most, len(points)))
    return np.array([stretch.mean(axis=0) for stretch in stretches]).T


def task_plot(points: Sequence[Any]) -> str:
    """Divergence, acceptance and unfairness over steps, from the rows of ``tasks.parquet``."""
    panels = {"divergence": "D, nats per token", "acceptance": "acceptance", "unfairness": "unfairness U, nats²"}
    tasks = list(dict.fromkeys(point.task for point in points))

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, len(panels))
        for panel, (name, label) in zip(axes, panels.items(), strict=True):
            of_all = name == "unfairness"
            for number, task in enumerate(tasks[:1] if of_all else tasks):
                line = [(point.step, getattr(point, name)) for point in points if point.task == task]
                colour = _OF_ALL if of_all else COLOURS[number % len(COLOURS)]
                panel.plot(*zip(*line, strict=True), "o-", markersize=3, color=colour, label=task)
            panel.set(xlabel="steps", ylabel=label)
        axes[0].legend()

    return drawn(3.4 * len(panels), 3.0, draw)
