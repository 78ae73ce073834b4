"""The plot of a run as SVG: how much faster each configuration is than plain decoding."""

from collections.abc import Sequence
from html import escape
from math import floor, isfinite, log10

from spectool.measure.report.verdicts import RunVerdict

_WIDTH, _HEIGHT, _TOP, _BOTTOM, _RIGHT = 760, 24, 12, 44, 24  # pixels; the height is a row's
_CHARACTER = 6.4  # pixels, about
_COLOUR = "#0072B2"


def speedup_plot(found: Sequence[RunVerdict]) -> str:
    """The mean speed-up of every configuration with its 95% interval, and a pale dot for each prompt.

    Configurations stand under a heading for each scope if there are several. A dashed line marks plain decoding.
    """
    results = [one for verdict in found for one in verdict.results]
    values = [value for one in results for value in (*one.speedups, *one.speedup[:3]) if value is not None] + [1.0]
    ticks = axis_ticks(min(values), max(values))
    low, high = min(*values, ticks[0]), max(*values, ticks[-1])
    labels = [one.label for one in results] + [verdict.scope for verdict in found if len(found) > 1]
    left = 16 + min(340.0, _CHARACTER * max(map(len, labels)))
    bottom = _TOP + _HEIGHT * len(labels)

    def x(value: float) -> float:
        return left + (value - low) / ((high - low) or 1.0) * (_WIDTH - _RIGHT - left)

    drawn = ""
    for tick in ticks:
        drawn += _line(x(tick), _TOP, x(tick), bottom, "#e4e4e4") + _text(x(tick), bottom + 16, f"{tick:g}", "middle")
    title = "speed-up (1: as fast as plain decoding)"
    drawn += _text((left + _WIDTH - _RIGHT) / 2, bottom + 36, title, "middle")
    drawn += _line(x(1.0), _TOP, x(1.0), bottom, "#444444", 1.5, dashes="5 4")
    y = _TOP + _HEIGHT / 2
    for verdict in found:
        if len(found) > 1:
            drawn += _text(8, y + 4, verdict.scope, weight="bold")
            y += _HEIGHT
        for one in verdict.results:
            mean = one.speedup
            drawn += _text(left - 8, y + 4, one.label, "end")
            drawn += "".join(_circle(x(speedup), y, 2.5, 0.25) for speedup in one.speedups)
            if mean.low is not None and mean.high is not None:
                drawn += _line(x(mean.low), y, x(mean.high), y, _COLOUR, 2)
            drawn += _circle(x(mean.value), y, 4.5)
            y += _HEIGHT
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
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{_COLOUR}" fill-opacity="{opacity}"/>'
