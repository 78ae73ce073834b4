"""Plots of a sweep, in SVG and PNG: what the paper's Figures 1 to 3 show, and the dial of the threshold."""

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from spectool.artifacts.plot_style import COLOURS, MARKERS, STYLE
from spectool.artifacts.replacing import renaming
from spectool.measure.emulate.sweep.results import Row
from spectool.measure.emulate.sweep.summaries import best_of, by_series, mean_of, number, pearson, size_of

_WIDTH = 3.5  # inches of one panel
_SPEEDUP = "tokens per pass"


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


def _fertility(series: Mapping[str, Sequence[Row]]) -> Figure | None:
    """Fertility against the best of the sweep (paper: Figure 1)."""
    colours, markers = _keys(series, "language", COLOURS), _keys(series, "tokenizer", MARKERS)
    figure, panels = _panels(series, 3.4)
    for panel, (name, rows) in zip(panels, series.items(), strict=True):
        best = best_of(rows)
        for row in best:
            panel.plot(
                row["fertility"],
                row["tokens_per_pass"],
                markers[row["tokenizer"]],
                color=colours[row["language"]],
                linestyle="none",
            )
        found = pearson([(row["fertility"], row["tokens_per_pass"]) for row in best])
        r = f"\nr = {found[0]:.2f} [{found[1]:.2f}, {found[2]:.2f}], n = {len(best)}" if found else ""
        panel.set_title(f"{name}{r}", fontsize=9)
        panel.set_xlabel("fertility (tokens per word)")
    panels[0].set_ylabel(f"best {_SPEEDUP}")
    shown = [_line(name, color=colour, marker="o", linestyle="none") for name, colour in colours.items()]
    shown += [_line(name, color="#666666", marker=marker, linestyle="none") for name, marker in markers.items()]
    _legend(figure, shown)
    return figure


def _sizes(series: Mapping[str, Sequence[Row]]) -> Figure | None:
    """Size against tokens per pass, a line for each threshold (paper: Figure 2)."""
    if all(len({size_of(row) for row in rows}) < 2 for rows in series.values()):
        return None
    chosen = {name: _longest_order(rows) for name, rows in series.items()}
    colours = _keys(chosen, "min_prob", COLOURS)
    markers = _keys(chosen, "min_prob", MARKERS)
    figure, panels = _panels(series, 3.0)
    for panel, (name, rows) in zip(panels, chosen.items(), strict=True):
        sizes = sorted({size for row in rows if (size := size_of(row)) is not None})
        for threshold in colours:
            at = [row for row in rows if row["min_prob"] == threshold]
            means = [(size, mean_of(at, lambda row, s=size: size_of(row) == s)) for size in sizes]  # type: ignore[misc]
            points = [point for point in means if point[1] is not None]
            if points:
                panel.plot(*zip(*points, strict=True), color=colours[threshold], marker=markers[threshold])
        panel.set_xscale("log")
        panel.set_xticks(sizes, [number(size) for size in sizes], rotation=45)
        panel.minorticks_off()
        order = rows[0]["order"]
        panel.set_title(f"{name}{f', {order}' if order else ''}", fontsize=9)
        panel.set_xlabel("n-grams taken" if rows[0]["entries_asked"] else "bytes at most")
    panels[0].set_ylabel(f"{_SPEEDUP}, mean of all pairs")
    _legend(figure, [_line(f"p_min {t:g}", color=colours[t], marker=markers[t]) for t in colours if t is not None])
    return figure


def _orders(series: Mapping[str, Sequence[Row]]) -> Figure | None:
    """The best of each order, for every pair (paper: Figure 3)."""
    ordered = {name: rows for name, rows in series.items() if len({row["order"] for row in rows}) > 1}
    if not ordered:
        return None
    colours, markers = _keys(ordered, "order", COLOURS), _keys(ordered, "order", MARKERS)
    pairs = sorted({(row["language"], row["tokenizer"]) for rows in ordered.values() for row in rows}, reverse=True)
    figure, panels = _panels(ordered, 0.9 + 0.24 * len(pairs), sharex=True)
    for panel, (name, rows) in zip(panels, ordered.items(), strict=True):
        for order in colours:
            best = {(r["language"], r["tokenizer"]): r for r in best_of(r for r in rows if r["order"] == order)}
            places = [place for place, pair in enumerate(pairs) if pair in best]
            values = [best[pairs[place]]["tokens_per_pass"] for place in places]
            panel.plot(values, places, markers[order], color=colours[order], linestyle="none", fillstyle="none")
        panel.set_title(name, fontsize=9)
        panel.set_xlabel(f"best {_SPEEDUP}")
        panel.set_ylim(-0.7, len(pairs) - 0.3)
    panels[0].set_yticks(range(len(pairs)), [f"{language}  {tokenizer}" for language, tokenizer in pairs])
    _legend(
        figure, [_line(o, color=colours[o], marker=markers[o], linestyle="none", fillstyle="none") for o in colours]
    )
    return figure


def _dial(series: Mapping[str, Sequence[Row]]) -> Figure | None:
    """Acceptance against tokens per pass along the thresholds, at the largest size and the longest order.

    The ends of one tokenizer's lines say which threshold they are.
    """
    largest = {name: _largest(_longest_order(rows)) for name, rows in series.items()}
    if all(len({row["min_prob"] for row in rows}) < 2 for rows in largest.values()):
        return None
    languages = sorted({row["language"] for rows in largest.values() for row in rows})
    colours = _keys(largest, "tokenizer", COLOURS)
    strokes = dict(zip(largest, ("-", "--", ":", "-."), strict=False))
    figure, panels = _panels(languages, 3.0, sharex=True)
    for panel, language in zip(panels, languages, strict=True):
        for name, rows in largest.items():
            for tokenizer, colour in colours.items():
                line = [row for row in rows if (row["language"], row["tokenizer"]) == (language, tokenizer)]
                line.sort(key=lambda row: row["min_prob"] or 0)
                x, y = [row["acceptance"] for row in line], [row["tokens_per_pass"] for row in line]
                panel.plot(x, y, strokes.get(name, "-"), color=colour, marker="o", markersize=3)
                if line and tokenizer == next(iter(colours)):
                    for row in (line[0], line[-1]):
                        at = (row["acceptance"], row["tokens_per_pass"])
                        panel.annotate(f"{row['min_prob']:g}", at, (4, 3), textcoords="offset points", fontsize=7)
        panel.set_title(language, fontsize=9)
        panel.set_xlabel("acceptance rate")
    panels[0].set_ylabel(_SPEEDUP)
    shown = [_line(name, color=colour) for name, colour in colours.items()]
    for name, rows in largest.items():
        order, size = rows[0]["order"], number(size_of(rows[0]))
        label = f"{name}{f', {order}' if order else ''}, {size}"
        shown.append(_line(label, color="#666666", linestyle=strokes.get(name, "-")))
    _legend(figure, shown)
    return figure


_PLOTS: dict[str, Callable[[Mapping[str, Sequence[Row]]], Figure | None]] = {
    "fertility": _fertility,
    "size": _sizes,
    "orders": _orders,
    "threshold": _dial,
}


def _longest_order(rows: Sequence[Row]) -> list[Row]:
    longest = max(row["order"] or "" for row in rows)
    return [row for row in rows if (row["order"] or "") == longest]


def _largest(rows: Sequence[Row]) -> list[Row]:
    largest = max(size_of(row) or 0 for row in rows)
    return [row for row in rows if (size_of(row) or 0) == largest]


def _panels(names: Any, height: float, sharex: bool = False) -> tuple[Figure, list[Any]]:
    """One panel for each name, side by side on one vertical scale."""
    figure = Figure(figsize=(_WIDTH * len(names) + 0.4, height + 0.7), layout="constrained")
    axes = figure.subplots(1, len(names), sharey=True, sharex=sharex, squeeze=False)
    return figure, list(axes[0])


def _keys(series: Mapping[str, Sequence[Row]], column: str, looks: Sequence[str]) -> dict[Any, str]:
    """Give every value of a column a colour or a marker."""
    values = {row[column] for rows in series.values() for row in rows}
    ordered = sorted(values, key=lambda value: (value is not None, value))
    return {value: looks[place % len(looks)] for place, value in enumerate(ordered)}


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
