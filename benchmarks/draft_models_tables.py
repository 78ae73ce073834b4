"""Writes the tables of docs/draft-models.md, from what `draft_models_replay.py` has found."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import click
import numpy as np
from draft_models_record import BEST, NAMES, SOURCES, TARGETS
from draft_models_replay import COSTS, LENGTHS
from saving import RESULTS, json_lines

from spectool.measure.chips import cost_range, published

CHIP = "M4 Pro"
_DRAFT_BYTES, _BYTES = 0.22e9, 4.5 / 8  # of the pruned draft in bfloat16; of a weight of 4 bits with its scales


def tables() -> Iterator[str]:
    """Markdown: what to expect, guesses and tokens per pass, and speeds on each curve."""
    kept = json_lines(RESULTS / "draft_models.jsonl")
    rows = {(row["target"], row["draft"], row["source"]): row for row in kept}  # the last of each
    costs = tuple(f"at {cost}" for cost in COSTS)
    yield _table(
        ("your model", "look-ups", *costs, f"a draft token on {CHIP}, 4 bits", "gain there"),
        (
            (model, f"{look_ups:.2f}", *(f"{speed:.2f}" for speed in both), *_on_chip(row, weights))
            for (target, draft, source), row in _in_order(rows)
            if (draft, source) == (BEST, SOURCES[0])
            for look_ups, both in [_usual(row, "")]
            for model, weights in TARGETS[target][1].items()
        ),
    )
    ways = "look-ups", "model", "both"
    yield _table(
        (
            *("tokenizer", "draft", "text", "places", "right: look-ups", "right: draft", "right: either"),
            *(f"up to {length}: look-ups, draft, both" for length in LENGTHS),
        ),
        (
            (
                *(TARGETS[target][0], NAMES[draft], source, f"{row['places']:,}"),
                *(_with_interval(each) for each in row["first"].values()),
                *(
                    ", ".join(f"{row['tokens per pass'][str(length)][way][0]:.2f}" for way in ways)
                    for length in LENGTHS
                ),
            )
            for (target, draft, source), row in _in_order(rows)
        ),
    )
    for source in SOURCES:
        here = [(target, row) for (target, draft, of), row in _in_order(rows) if of == source and draft == BEST]
        if not here:
            continue
        head = "curve", *(f"{TARGETS[target][0]}, {source}" for target, _ in here)
        body = ((name, *(_speeds(row["curves"][title]) for _, row in here)) for title, name in _curves().items())
        yield _table(head, body)


def _curves() -> dict[str, str]:
    """A short name for each published curve, by its title; of equal ones, the first."""
    found: dict[str, str] = {}
    seen = []
    for row in published():
        if row.curves not in seen:
            seen.append(row.curves)
            group = f", groups of {row.group}" if row.group else ""
            experts = ", mixture of experts" if row.experts else ""
            context = f", after {max(row.curves):,} tokens" if max(row.curves) > 1000 else ""
            found[row.title] = row.title.partition(f", {row.source}")[0] + group + experts + context
    return found


def _in_order(rows: Mapping[tuple[str, str, str], Any]) -> list[tuple[tuple[str, str, str], Any]]:
    order = (list(TARGETS), list(NAMES), SOURCES)
    return sorted(rows.items(), key=lambda row: [known.index(part) for part, known in zip(row[0], order, strict=True)])


def _usual(row: Mapping[str, Any], curves: str) -> tuple[float, list[float]]:
    """The median over the curves whose names begin with this: with look-ups, and with both at each cost."""
    speeds = [row["curves"][title] for title, name in _curves().items() if name.startswith(curves)]
    both = [median(curve["both"][at] for curve in speeds) for at in range(len(COSTS))]
    return median(curve["look-ups"][0] for curve in speeds), both


def _on_chip(row: Mapping[str, Any], billions: float) -> tuple[str, str]:
    """What a draft token costs where nobody has timed it, and what the draft model adds to look-ups at either end."""
    look_ups, both = _usual(row, f"{CHIP}, 4-bit")
    ends = [each.token for each in cost_range(CHIP, _DRAFT_BYTES, billions * 1e9 * _BYTES)]
    gains = sorted(100 * (np.interp(each, COSTS, both) / look_ups - 1) for each in ends)
    return " to ".join(f"{each:.2f}" for each in ends), " to ".join(
        dict.fromkeys(f"{round(each):+d}%" for each in gains)
    )


def _with_interval(figures: Sequence[float]) -> str:
    share, low, high = figures
    return f"{share:.2f} ({low:.2f}–{high:.2f})"


def _speeds(ways: Mapping[str, Sequence[float]]) -> str:
    """With look-ups; with both at each cost."""
    return "; ".join(", ".join(f"{speed:.2f}" for speed in ways[way]) for way in ("look-ups", "both"))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


if __name__ == "__main__":
    click.echo("\n\n".join(tables()))
