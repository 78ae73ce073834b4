"""Plots of a sweep as SVG: what the paper's Figures 1 to 3 show."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from spectool.lab.sweep.tables import PAIR, best_of, longest_order, number, pearson

# Okabe and Ito's palette: colour-blind readers can tell the colours apart; in print the markers do.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
_MARKERS = "osD^vPX*"
_WIDTH = 3.5  # inches of one panel
_SPEEDUP = "tokens per pass"
_STYLE: dict[Any, Any] = {
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
_GREY = "#666666"
_POINTS = {"linestyle": "none"}
_HOLLOW = {"linestyle": "none", "fillstyle": "none"}
Series = Mapping[str, pd.DataFrame]
Looks = Mapping[Any, Mapping[str, Any]]
"""How matplotlib draws each value of a column."""


def sweep_plots(series: Series) -> dict[str, str]:
    """The plots that the runs have enough points for, by name."""
    drawings = {"fertility": _fertility, "sizes": _sizes, "orders": _orders}
    found = {name: draw(series) for name, draw in drawings.items()} if series else {}
    return {name: svg for name, svg in found.items() if svg is not None}


def _fertility(series: Series) -> str:
    """Fertility against the best of the sweep (paper: Figure 1)."""
    languages, tokenizers = _looks(series, "language", color=_COLOURS), _looks(series, "tokenizer", marker=_MARKERS)

    def draw(panel: Any, name: str) -> None:
        best = best_of(series[name])
        for row in best.itertuples():
            look = {**languages[row.language], **tokenizers[row.tokenizer]}
            panel.plot(row.fertility, row.tokens_per_pass, **_POINTS, **look)
        found = pearson(best[["fertility", "tokens_per_pass"]])
        r = f"\nr = {found[0]:.2f} [{found[1]:.2f}, {found[2]:.2f}], n = {len(best)}" if found else ""
        panel.set(title=f"{name}{r}", xlabel="fertility (tokens per word)")

    shown = _legend(languages, marker="o", **_POINTS) + _legend(tokenizers, color=_GREY, **_POINTS)
    return _panels(series, 3.4, f"best {_SPEEDUP}", draw, shown)


def _sizes(series: Series) -> str | None:
    """Size against tokens per pass, a line for each threshold (paper: Figure 2)."""
    if all(runs["size"].nunique() < 2 for runs in series.values()):
        return None
    longest = {name: longest_order(runs) for name, runs in series.items()}
    looks = _looks(longest, "min_prob", color=_COLOURS, marker=_MARKERS)

    def draw(panel: Any, name: str) -> None:
        runs = longest[name]
        means = runs.pivot_table(index="size", columns="min_prob", values="tokens_per_pass", aggfunc="mean")
        for threshold in means:
            panel.plot(means[threshold].dropna(), **looks[threshold])
        panel.set_xscale("log")
        panel.set_xticks(means.index, [number(size) for size in means.index], rotation=45)
        panel.minorticks_off()
        taken = "n-grams taken" if runs["entries_asked"].notna().any() else "bytes at most"
        panel.set(title=_with_order(name, runs), xlabel=taken)

    shown = _legend({f"p_min {threshold:g}": look for threshold, look in looks.items()})
    return _panels(series, 3.0, f"{_SPEEDUP}, mean of all pairs", draw, shown)


def _orders(series: Series) -> str | None:
    """The best of each order, for every pair (paper: Figure 3)."""
    best = {name: best_of(runs, "order") for name, runs in series.items() if runs["order"].nunique() > 1}
    if not best:
        return None
    looks = _looks(best, "order", color=_COLOURS, marker=_MARKERS)
    pairs = sorted(set(pd.concat(best.values())[PAIR].itertuples(index=False, name=None)), reverse=True)

    def draw(panel: Any, name: str) -> None:
        for order, points in best[name].groupby("order"):
            at = [pairs.index(pair) for pair in points[PAIR].itertuples(index=False, name=None)]
            panel.plot(points["tokens_per_pass"], at, **_HOLLOW, **looks[order])
        panel.set_yticks(range(len(pairs)), ["  ".join(pair) for pair in pairs])
        panel.set(title=name, xlabel=f"best {_SPEEDUP}", ylim=(-0.7, len(pairs) - 0.3))

    return _panels(best, 0.9 + 0.24 * len(pairs), "", draw, _legend(looks, **_HOLLOW), sharex=True)


def _panels(
    names: Iterable[str],
    height: float,
    ylabel: str,
    draw: Callable[[Any, str], None],
    shown: Sequence[Line2D],
    sharex: bool = False,
) -> str:
    """Draw a panel for each name, side by side on one vertical scale, with a legend of ``shown`` below."""
    titles = list(names)
    width = _WIDTH * len(titles) + 0.4

    def whole(figure: Any) -> None:
        panels = figure.subplots(1, len(titles), sharey=True, sharex=sharex, squeeze=False)[0]
        for panel, name in zip(panels, titles, strict=True):
            draw(panel, name)
            panel.title.set_fontsize(9)
        panels[0].set_ylabel(ylabel)
        columns = max(1, min(int(width // 1.35), len(shown)))
        figure.legend(handles=shown, loc="outside lower center", ncols=columns)

    return _drawn(width, height + 0.7, whole)


def _drawn(width: float, height: float, draw: Callable[[Any], object]) -> str:
    """What ``draw`` draws on a figure (inches) as SVG, the same bytes for the same drawing."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        out = StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _with_order(name: str, runs: pd.DataFrame) -> str:
    return ", ".join(filter(None, (name, runs["order"].iloc[0])))


def _looks(series: Series, column: str, **styles: Sequence[str]) -> Looks:
    """A colour, a marker, or both for every value of a column."""
    values = sorted(pd.concat(series.values())[column].dropna().unique())
    return {
        value: {name: style[place % len(style)] for name, style in styles.items()} for place, value in enumerate(values)
    }


def _legend(looks: Looks, **common: Any) -> list[Line2D]:
    return [Line2D([], [], label=str(label), **common, **look) for label, look in looks.items()]
