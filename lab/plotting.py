"""Plots by matplotlib: one style, colours that colour-blind readers can tell apart, and names as they are."""

from collections.abc import Callable
from io import StringIO
from typing import Any

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "spectool",
    "svg.fonttype": "none",
}
# Okabe and Ito's palette: colour-blind readers can tell them apart; in print the markers do.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = "osD^vPX*"


def look_of(number: int) -> dict[str, str]:
    """Marker and colour of one of several things in a plot, by its number; after eight they repeat."""
    return {"marker": MARKERS[number % len(MARKERS)], "color": COLOURS[number % len(COLOURS)]}


def literal(name: str) -> str:
    """A label that matplotlib draws as ``name``, without a formula in it, and not left out of the legend.

    Matplotlib reads a formula between dollar signs, and hides a label that begins with an underscore, so an invisible
    character (word joiner) is put before the latter.

    >>> literal("$5 or $6"), literal("_x"), literal("qwen")
    ('\\\\$5 or \\\\$6', '\\u2060_x', 'qwen')
    """
    escaped = name.replace("$", r"\$")
    return f"\u2060{escaped}" if escaped.startswith("_") else escaped


def drawn(width: float, height: float, draw: Callable[[Any], object]) -> str:
    """What ``draw`` draws on a matplotlib figure (inches) as SVG, the same bytes for the same drawing."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        out = StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()
