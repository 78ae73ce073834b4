"""The loss curve as a plot, in SVG and PNG."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from spectool.artifacts import plot_style
from spectool.build.training.curve import Point, means

STYLE = {**plot_style.STYLE, "axes.spines.right": True}  # a second axis stands there
_TRAINING, _HELD_OUT = plot_style.COLOURS[:2]
_STRETCHES = 400


def write_plots(points: Sequence[Point], out: Path) -> None:
    """Draw loss and held-out bits per byte over tokens: ``curve.svg`` and ``curve.png`` in ``out``."""
    with matplotlib.rc_context(STYLE):
        figure = _figure(points)
        for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            drawn = BytesIO()
            figure.savefig(drawn, format=kind, dpi=200, metadata=metadata)
            (out / f"curve.{kind}").write_bytes(drawn.getvalue())


def _figure(points: Sequence[Point]) -> Figure:
    step_tokens = points[0].tokens / points[0].step
    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    axes = figure.subplots()
    smooth = means(points, _STRETCHES)
    axes.plot([step * step_tokens for step, _ in smooth], [loss for _, loss in smooth], color=_TRAINING)
    axes.set_xlabel("tokens trained on")
    axes.set_ylabel("training loss, nats per token", color=_TRAINING)
    measured = [(point.tokens, point.bits_per_byte) for point in points if point.bits_per_byte is not None]
    other = axes.twinx()
    other.grid(visible=False)
    other.plot(*zip(*measured, strict=True), "o-", color=_HELD_OUT, markersize=4)
    other.set_ylabel("held out, bits per byte", color=_HELD_OUT)
    return figure
