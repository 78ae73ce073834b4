"""Plots of a run as SVG, a row for each configuration: how much faster it is, and where the time of a cycle goes."""

from collections.abc import Callable, Sequence
from html import escape
from math import floor, isfinite, log10
from typing import NamedTuple

from spectool.measure.report.trials import ConfigurationResult
from spectool.measure.report.verdicts import RunVerdict

_WIDTH, _HEIGHT, _TOP, _BOTTOM, _RIGHT = 760, 24, 34, 44, 24  # pixels; the height is a row's
_CHARACTER = 6.4  # pixels, about
# Okabe and Ito's palette, which colour-blind readers can tell apart.
_PARTS = {"drafting": "#0072B2", "target's pass": "#D55E00", "rest": "#009E73"}
_POINT, _MARK = "#0072B2", "#000000"


class _Row(NamedTuple):
    """What is drawn next to a label, in values of x; nothing next to a heading."""

    label: str
    dots: Sequence[float] = ()  # small and pale
    interval: tuple[float, float] | None = None
    point: float | None = None
    bars: Sequence[tuple[float, str]] = ()  # lengths and colours, one after the other
    mark: float | None = None

    @property
    def values(self) -> list[float]:
        """What the axis has to reach."""
        ends = [each for each in (self.point, self.mark) if each is not None]
        bars = [0.0, sum(length for length, _ in self.bars)] if self.bars else []
        return [*self.dots, *(self.interval or ()), *ends, *bars]


def speedup_plot(found: Sequence[RunVerdict]) -> str:
    """Speed-up of every configuration: its mean with the 95% interval, and a pale dot for each prompt."""

    def row(one: ConfigurationResult) -> _Row:
        value, low, high, _ = one.speedup
        return _Row(one.label, one.speedups, None if low is None or high is None else (low, high), value)

    return _chart(_rows(found, row), "speed-up (1: as fast as plain decoding)", at=1.0)


def cycle_plot(found: Sequence[RunVerdict]) -> str:
    """The time of an average cycle in plain steps, stacked, with a mark where it would be as fast as plain decoding."""

    def row(one: ConfigurationResult) -> _Row:
        bars = [(max(length, 0.0), _PARTS[part]) for part, length in one.cycle.items()]
        return _Row(one.label, bars=bars, mark=one.tokens_per_pass)

    legend = [*_PARTS.items(), ("plain decoding, same tokens", _MARK)]
    return _chart(_rows(found, row), "a cycle, in steps of plain decoding", legend=legend)


def _rows(found: Sequence[RunVerdict], row: Callable[[ConfigurationResult], _Row]) -> list[_Row]:
    """A row for each configuration, under a heading for each scope if there are several."""
    rows: list[_Row] = []
    for verdict in found:
        rows += [_Row(verdict.scope)] if len(found) > 1 else []
        rows += map(row, verdict.results)
    return rows


def _chart(rows: Sequence[_Row], title: str, at: float | None = None, legend: Sequence[tuple[str, str]] = ()) -> str:
    """Lay out rows over a linear axis, with a dashed line ``at`` a value."""
    values = [value for row in rows for value in row.values] + [1.0]
    ticks = axis_ticks(min(values), max(values))
    low, high = min(*values, ticks[0]), max(*values, ticks[-1])
    left = 16 + min(340.0, _CHARACTER * max(len(row.label) for row in rows))
    bottom = _TOP + _HEIGHT * len(rows)

    def x(value: float) -> float:
        return left + (value - low) / ((high - low) or 1.0) * (_WIDTH - _RIGHT - left)

    drawn = ""
    for tick in ticks:
        drawn += _line(x(tick), _TOP, x(tick), bottom, "#e4e4e4") + _text(x(tick), bottom + 16, f"{tick:g}", "middle")
    drawn += _text((left + _WIDTH - _RIGHT) / 2, bottom + 36, title, "middle")
    if at is not None:
        drawn += _line(x(at), _TOP, x(at), bottom, "#444444", 1.5, dashes="5 4")
    across = 16.0
    for name, colour in legend:
        drawn += _bar(across, 16, across + 12, colour, 12) + _text(across + 17, 20, name)
        across += 36 + _CHARACTER * len(name)
    for number, row in enumerate(rows):
        y, begin = _TOP + _HEIGHT * (number + 0.5), 0.0
        heading = not (row.dots or row.bars)
        drawn += _text(8, y + 4, row.label, weight="bold") if heading else _text(left - 8, y + 4, row.label, "end")
        for length, colour in row.bars:
            drawn += _bar(x(begin), y, x(begin + length), colour)
            begin += length
        drawn += "".join(_circle(x(dot), y, 2.5, 0.25) for dot in row.dots)
        drawn += "" if row.interval is None else _line(x(row.interval[0]), y, x(row.interval[1]), y, _POINT, 2)
        drawn += "" if row.point is None else _circle(x(row.point), y, 4.5)
        drawn += "" if row.mark is None else _line(x(row.mark), y - 10, x(row.mark), y + 10, _MARK, 3)
    height = bottom + _BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12"><rect width="100%" height="100%" fill="#ffffff"/>{drawn}'
        "</svg>\n"
    )


def axis_ticks(low: float, high: float) -> list[float]:
    """Round values from below ``low`` to ``high``, about six of them.

    >>> axis_ticks(0.8, 1.9), axis_ticks(0.0, 3.1)
    ([0.8, 1.0, 1.2, 1.4, 1.6, 1.8], [0.0, 1.0, 2.0, 3.0])
    """
    rough = (high - low) / 5
    if not (isfinite(rough) and rough > 0):
        return [low]
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if rough <= unit * factor * 1.2)
    first = floor(low / step + 1e-9)
    last = floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _text(x: float, y: float, text: str, anchor: str = "start", weight: str = "normal") -> str:
    shown = escape("".join(one if one.isprintable() else "\ufffd" for one in text))
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{shown}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, colour: str, width: float = 1, dashes: str = "none") -> str:
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}" '
        f'stroke-width="{width}" stroke-dasharray="{dashes}"/>'
    )


def _circle(x: float, y: float, radius: float, opacity: float = 1.0) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{_POINT}" fill-opacity="{opacity}"/>'


def _bar(x: float, y: float, to_x: float, colour: str, height: float = 16) -> str:
    return f'<rect x="{x:.1f}" y="{y - height / 2:.1f}" width="{to_x - x:.1f}" height="{height}" fill="{colour}"/>'
