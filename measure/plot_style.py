"""How all plots look: one style, colours that colour-blind readers can tell apart, and names as they are."""

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
# Okabe and Ito's palette: told apart by colour-blind readers, and in print by the markers beside it.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = "osD^vPX*"


def look_of(number: int) -> dict[str, str]:
    """Return marker and colour of one of several things in a plot, by its number; from the ninth on they come again."""
    return {"marker": MARKERS[number % len(MARKERS)], "color": COLOURS[number % len(COLOURS)]}


def literal(name: str) -> str:
    """Return a label that matplotlib draws as ``name``: with no formula in it, and not left out of the legend.

    Between dollar signs matplotlib reads a formula, and a label that begins with an underscore it hides. An
    invisible character (word joiner) goes before the latter.

    >>> literal("$5 or $6"), literal("_x"), literal("qwen")
    ('\\\\$5 or \\\\$6', '\\u2060_x', 'qwen')
    """
    escaped = name.replace("$", r"\$")
    return f"\u2060{escaped}" if escaped.startswith("_") else escaped
