"""Which drafter the gain came from: every accepted draft token is a pass that was not needed."""

from typing import Any

from spectool.runtime.decoding.statistics import DraftStatistics


def by_source(statistics: DraftStatistics) -> dict[str, dict[str, int]]:
    """Return proposed and accepted draft tokens by source, the source of most accepted ones first."""
    names = sorted(statistics.proposed_by, key=lambda name: -statistics.accepted_by[name])
    return {
        name: {"proposed": statistics.proposed_by[name], "accepted": statistics.accepted_by[name]} for name in names
    }


def spelled(sources: dict[str, Any]) -> str:
    """Spell what `by_source` returns.

    >>> spelled({"history": {"proposed": 16, "accepted": 12}, "dictionary": {"proposed": 15, "accepted": 3}})
    'history 12 of 16 (80% of the gain), dictionary 3 of 15 (20%)'
    """
    gain = sum(counts["accepted"] for counts in sources.values())
    lines: list[str] = []
    for name, counts in sources.items():
        share = f" ({counts['accepted'] / gain:.0%}{'' if lines else ' of the gain'})" if gain else ""
        lines.append(f"{name} {counts['accepted']} of {counts['proposed']}{share}")
    return ", ".join(lines)
