"""The main figures of a run, for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from spectool.artifacts.console import table


def differences(counts: Mapping[str, Any]) -> str:
    """Say how many outputs leave plain decoding's, and where."""
    number, compared = counts["different"], counts["compared"]
    if not number:
        return f"0 of {compared['outputs']:,} outputs, {compared['tokens']:,} tokens"
    return (
        f"{number:,} of {compared['outputs']:,} outputs, one in {compared['tokens'] / number:,.0f} tokens, the first "
        f"after {counts['first_difference']:,}; the two best logits there are {counts['largest_gap']:.3g} apart at most"
    )


def figures_table(figures: Sequence[Mapping[str, Any]]) -> str:
    """Lay out the main figures of all configurations; intervals are of 95%, over prompts."""
    several, drawn = len({each["model"] for each in figures}) > 1, any(each["temperature"] for each in figures)
    header = ["drafter", "strategy", *(["temperature"] if drawn else []), "k", "speed-up", "95% interval"]
    rows = []
    for each in figures:
        low, high = each["low"], each["high"]
        rows.append(
            [
                f"{each['model']}: {each['drafter']}" if several else each["drafter"],
                each["strategy"] or "",
                *([f"{each['temperature']:g}"] if drawn else []),
                "auto" if each["num_draft_tokens"] is None else str(each["num_draft_tokens"]),
                f"{each['speedup']:.2f}",
                "" if low is None else f"{max(0.0, low):.2f} to {high:.2f}",
                "" if each["acceptance"] is None else f"{each['acceptance']:.0%}",
                f"{each['tokens_per_pass']:.2f}",
                str(each["prompts"]),
            ]
        )
    return table([*header, "acceptance", "tokens per pass", "prompts"], rows)
