"""The totals of a run: what can be said of its configurations without the libraries of a report."""

from collections import defaultdict
from typing import Any

from spectool.artifacts.benchmark import PLAIN, Benchmark, Row
from spectool.commands.console import table
from spectool.measure.sample_size import FEWEST, LEAST

_CONFIGURATION = ("model", "temperature", "drafter", "strategy", "num_draft_tokens")
_PROMPT = ("language", "kind", "prompt")
_SUMMED = ("tokens", "passes", "proposed", "accepted", "seconds")


def totals(run: Benchmark) -> list[dict[str, Any]]:
    """The figures of each drafted configuration, over all its prompts together.

    ``speedup`` is its tokens per second over those of plain decoding of the same prompts. `spectool report` has the
    mean over prompts instead, and its interval. ``prompts`` counts those with `LEAST` tokens or more in every output.
    """
    sums: dict[tuple[Any, ...], Row] = defaultdict(
        lambda: dict.fromkeys((*_SUMMED, "plain_tokens", "plain_seconds"), 0)
    )
    prompts = defaultdict[tuple[Any, ...], set[tuple[Any, ...]]](set)
    columns = ["block", *_PROMPT, *_CONFIGURATION, *_SUMMED]
    rows: list[Row] = run.generations.select(columns).to_pylist()
    plain = {(row["block"], row["model"]): row for row in rows if row["drafter"] == PLAIN}
    short = {(row["block"], row["model"]) for row in rows if row["tokens"] < LEAST}
    for row in rows:
        beside = plain.get((row["block"], row["model"]))
        if row["drafter"] == PLAIN or beside is None:
            continue
        configuration = tuple(row[name] for name in _CONFIGURATION)
        summed, seen = sums[configuration], prompts[configuration]
        if (row["block"], row["model"]) not in short:
            seen.add(tuple(row[name] for name in _PROMPT))
        for name in _SUMMED:
            summed[name] += row[name]
        for name in ("tokens", "seconds"):
            summed[f"plain_{name}"] += beside[name]
    return [
        {
            **dict(zip(_CONFIGURATION, configuration, strict=True)),
            "tokens_per_pass": summed["tokens"] / summed["passes"],
            "acceptance": summed["accepted"] / summed["proposed"] if summed["proposed"] else None,
            "speedup": summed["tokens"] / summed["seconds"] * summed["plain_seconds"] / summed["plain_tokens"],
            "prompts": len(prompts[configuration]),
        }
        for configuration, summed in sorted(sums.items(), key=lambda item: str(item[0]))
    ]


def totals_table(run: Benchmark) -> str:
    """Lay out what `totals` returns."""
    lines = []
    for each in totals(run):
        name = ", ".join(filter(None, (each["model"], each["drafter"], each["strategy"])))
        length = "auto" if each["num_draft_tokens"] is None else str(each["num_draft_tokens"])
        acceptance = "" if each["acceptance"] is None else f"{each['acceptance']:.0%}"
        speedup = "—" if each["prompts"] < FEWEST else f"{each['speedup']:.2f}"
        figures = [acceptance, f"{each['tokens_per_pass']:.2f}", speedup]
        lines.append([name, f"{each['temperature']:g}", length, *figures])
    return table(["drafter", "temperature", "k", "acceptance", "tokens per pass", "speed-up"], lines)
