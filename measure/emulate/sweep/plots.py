"""Plots of a sweep, in SVG and PNG: what the paper's Figures 1 to 3 show, and the dial of the threshold."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from spectool.artifacts.plot_style import COLOURS, MARKERS, STYLE
from spectool.artifacts.replacing import renaming
from spectool.measure.emulate.sweep.results import Row
from spectool.measure.emulate.sweep.tables import PAIR, best_of, by_series, longest_order, number, pearson

_WIDTH = 3.5  # inches of one panel
_SPEEDUP = "tokens per pass"
Series = Mapping[str, pd.DataFrame]


def write_plots(rows: Sequence[Row], out: Path) -> list[str]:
    """Draw every plot that the runs have enough points for; return the names of the files."""
    series = by_series(rows)
    names = []
    if series:
        with matplotlib.rc_context(STYLE):
            for name, draw in _PLOTS.items():
                figure = draw(series)
                if figure is not None:
                    names += _save(figure, out, name)
    return names


def _fertility(series: Series) -> Figure | None:
    """Fertility against the best of the sweep (paper: Figure 1)."""
    colours, markers = _keys(series, "language", COLOURS), _keys(series, "tokenizer", MARKERS)
    figure, panels = _panels(series, 3.4)
    for panel, (name, runs) in zip(panels, series.items(), strict=True):
        best = best_of(runs)
        for row in best.itertuples():
            look = {"color": colours[row.language], "marker": markers[row.tokenizer]}
            panel.plot(row.fertility, row.tokens_per_pass, linestyle="none", **look)
        found = pearson(best[["fertility", "tokens_per_pass"]])
        r = f"\nr = {found[0]:.2f} [{found[1]:.2f}, {found[2]:.2f}], n = {len(best)}" if found else ""
        panel.set_title(f"{name}{r}", fontsize=9)
        panel.set_xlabel("fertility (tokens per word)")
    panels[0].set_ylabel(f"best {_SPEEDUP}")
    shown = [_line(name, color=colour, marker="o", linestyle="none") for name, colour in colours.items()]
    shown += [_line(name, color="#666666", marker=marker, linestyle="none") for name, marker in markers.items()]
    _legend(figure, shown)
    return figure


def _sizes(series: Series) -> Figure | None:
    """Size against tokens per pass, a line for each threshold (paper: Figure 2)."""
    if all(runs["size"].nunique() < 2 for runs in series.values()):
        return None
    longest = {name: longest_order(runs) for name, runs in series.items()}
    colours, markers = _keys(longest, "min_prob", COLOURS), _keys(longest, "min_prob", MARKERS)
    figure, panels = _panels(series, 3.0)
    for panel, (name, runs) in zip(panels, longest.items(), strict=True):
        means = runs.pivot_table(index="size", columns="min_prob", values="tokens_per_pass", aggfunc="mean")
        for threshold in means:
            panel.plot(means[threshold].dropna(), color=colours[threshold], marker=markers[threshold])
        panel.set_xscale("log")
        panel.set_xticks(means.index, [number(size) for size in means.index], rotation=45)
        panel.minorticks_off()
        panel.set_title(_with_order(name, runs), fontsize=9)
        panel.set_xlabel("n-grams taken" if runs["entries_asked"].notna().any() else "bytes at most")
    panels[0].set_ylabel(f"{_SPEEDUP}, mean of all pairs")
    _legend(figure, [_line(f"p_min {t:g}", color=colours[t], marker=markers[t]) for t in colours])
    return figure


def _orders(series: Series) -> Figure | None:
    """The best of each order, for every pair (paper: Figure 3)."""
    ordered = {name: best_of(runs, "order") for name, runs in series.items() if runs["order"].nunique() > 1}
    if not ordered:
        return None
    colours, markers = _keys(ordered, "order", COLOURS), _keys(ordered, "order", MARKERS)
    pairs = sorted({pair for best in ordered.values() for pair in best[PAIR].itertuples(index=False, name=None)})
    places = {pair: place for place, pair in enumerate(reversed(pairs))}
    figure, panels = _panels(ordered, 0.9 + 0.24 * len(pairs), sharex=True)
    for panel, (name, best) in zip(panels, ordered.items(), strict=True):
        for order, points in best.groupby("order"):
            at = [places[pair] for pair in points[PAIR].itertuples(index=False, name=None)]
            look = {"color": colours[order], "marker": markers[order]}
            panel.plot(points["tokens_per_pass"], at, linestyle="none", fillstyle="none", **look)
        panel.set_title(name, fontsize=9)
        panel.set_xlabel(f"best {_SPEEDUP}")
        panel.set_ylim(-0.7, len(pairs) - 0.3)
    panels[0].set_yticks(list(places.values()), [f"{language}  {tokenizer}" for language, tokenizer in places])
    hollow = {"linestyle": "none", "fillstyle": "none"}
    _legend(figure, [_line(order, color=colours[order], marker=markers[order], **hollow) for order in colours])
    return figure


def _dial(series: Series) -> Figure | None:
    """Acceptance against tokens per pass along the thresholds, at the largest size and the longest order.

    The ends of one tokenizer's lines say which threshold they are.
    """
    longest = {name: longest_order(runs) for name, runs in series.items()}
    largest = {name: runs[runs["size"] == runs["size"].max()] for name, runs in longest.items()}
    if all(runs["min_prob"].nunique() < 2 for runs in largest.values()):
        return None
    colours = _keys(largest, "tokenizer", COLOURS)
    strokes = dict(zip(largest, ("-", "--", ":", "-."), strict=False))
    languages = list(_keys(largest, "language", COLOURS))
    figure, panels = _panels(languages, 3.0, sharex=True)
    for panel, language in zip(panels, languages, strict=True):
        for name, runs in largest.items():
            for tokenizer, line in runs[runs["language"] == language].sort_values("min_prob").groupby("tokenizer"):
                look = {"color": colours[tokenizer], "linestyle": strokes.get(name, "-"), "marker": "o"}
                panel.plot(line["acceptance"], line["tokens_per_pass"], markersize=3, **look)
                for end in (line.iloc[0], line.iloc[-1]) if tokenizer == next(iter(colours)) else ():
                    at = (end["acceptance"], end["tokens_per_pass"])
                    panel.annotate(f"{end['min_prob']:g}", at, (4, 3), textcoords="offset points", fontsize=7)
        panel.set_title(language, fontsize=9)
        panel.set_xlabel("acceptance rate")
    panels[0].set_ylabel(_SPEEDUP)
    shown = [_line(name, color=colour) for name, colour in colours.items()]
    for name, runs in largest.items():
        label = f"{_with_order(name, runs)}, {number(runs['size'].iloc[0])}"
        shown.append(_line(label, color="#666666", linestyle=strokes.get(name, "-")))
    _legend(figure, shown)
    return figure


_PLOTS: dict[str, Callable[[Series], Figure | None]] = {
    "fertility": _fertility,
    "size": _sizes,
    "orders": _orders,
    "threshold": _dial,
}


def _with_order(name: str, runs: pd.DataFrame) -> str:
    return ", ".join(filter(None, (name, runs["order"].iloc[0])))


def _panels(names: Any, height: float, sharex: bool = False) -> tuple[Figure, list[Any]]:
    """One panel for each name, side by side on one vertical scale."""
    figure = Figure(figsize=(_WIDTH * len(names) + 0.4, height + 0.7), layout="constrained")
    axes = figure.subplots(1, len(names), sharey=True, sharex=sharex, squeeze=False)
    return figure, list(axes[0])


def _keys(series: Series, column: str, looks: Sequence[str]) -> dict[Any, str]:
    """Give every value of a column a colour or a marker."""
    values: Iterable[Any] = sorted(pd.concat(series.values())[column].dropna().unique())
    return {value: looks[place % len(looks)] for place, value in enumerate(values)}


def _line(label: str, **look: Any) -> Line2D:
    return Line2D([], [], label=label, **look)


def _legend(figure: Figure, lines: Sequence[Line2D]) -> None:
    columns = max(2, int(figure.get_figwidth() // 1.35))
    figure.legend(handles=list(lines), loc="outside lower center", ncols=min(columns, len(lines) or 1))


def _save(figure: Figure, out: Path, name: str) -> list[str]:
    """Write one plot in both formats, each whole or not at all."""
    names = []
    for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
        drawn = BytesIO()
        figure.savefig(drawn, format=kind, dpi=200, metadata=metadata)
        with renaming(out / f"{name}.{kind}") as partial:
            partial.write_bytes(drawn.getvalue())
        names.append(f"{name}.{kind}")
    return names
