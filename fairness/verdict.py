"""Who is slow, by how much, and what helps: one sentence, and what it rests on.

The gap is between the fastest and the slowest task with the first draft that could be compared with the target. What
could help the slow one: any other draft, any dictionary (tokens per pass of a replay; looking up costs nothing beside
a pass), or not drafting at all. What lies within chance is said to do so: differences of less than 1.96 standard
errors, rows of text being what is drawn.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from spectool.fairness.formulas import Z

PLAIN = "no drafting"


class Speed(NamedTuple):
    """An expected speed against plain decoding, and its standard error."""

    value: float
    error: float

    def beyond(self, other: "Speed") -> bool:
        """Whether it is more than another one, and not by chance."""
        return self.value - other.value > Z * math.hypot(self.error, other.error)


def speeds(figures: Mapping[str, Any], task: str) -> dict[str, Speed]:
    """Return what a task would get of every way to draft, and of none: those that tell something of it."""
    found = {PLAIN: Speed(1.0, 0.0)}
    for name, draft in figures["drafts"].items():
        at = draft["tasks"][task]
        if at["speedup"] is not None:
            found[name] = Speed(at["speedup"], at["speedup_error"])
    for name, dictionary in figures["dictionaries"].items():
        at = dictionary["tasks"][task]
        if not at["built_from_it"]:
            found[name] = Speed(at["tokens_per_pass"], at["error"])
    return found


def verdict(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict: a sentence, the draft, the slow and the fast task, and what helps (null where none does)."""
    compared = [name for name, draft in figures["drafts"].items() if draft["compared"] != "text"]
    if not compared:
        return _of_text(figures)
    draft, tasks = compared[0], list(figures["tasks"])
    by_task = {task: speeds(figures, task)[draft] for task in tasks}
    slow, fast = min(tasks, key=by_task.__getitem__), max(tasks, key=by_task.__getitem__)
    found: dict[str, Any] = {"draft": draft, "slow": slow, "fast": fast, "helps": None}
    said = f"with {draft}, {slow} is expected to run at {by_task[slow].value:.2f} times the speed of plain decoding"
    if len(tasks) == 1:
        sentence = f"One task alone was measured: {said}; {_helped(figures, found)}."
    elif not by_task[fast].beyond(by_task[slow]):
        found |= {"slow": None, "fast": None}
        sentence = (
            f"No task is slower than another beyond chance: {said} and {fast} at {by_task[fast].value:.2f}, which are "
            "the ends."
        )
    else:
        share = 1 - by_task[slow].value / by_task[fast].value
        sentence = (
            f"{slow} is slow: {said}, {share:.0%} less than {fast} at {by_task[fast].value:.2f}; "
            f"{_helped(figures, found)}."
        )
    return {"sentence": sentence, **found}


def _helped(figures: Mapping[str, Any], found: dict[str, Any]) -> str:
    """Say what helps the slow task most, and note it in ``found``."""
    ways = speeds(figures, found["slow"])
    plain, now = ways[PLAIN], ways.pop(found["draft"])
    best = max(ways, key=lambda way: ways[way].value)
    if not ways[best].beyond(plain):
        best = PLAIN
    if not ways[best].beyond(now):
        return "nothing measured helps it" if len(ways) > 1 else "nothing else was measured that could help it"
    found["helps"] = best
    if best == PLAIN:
        return "nothing measured is faster for it than not drafting at all"
    kind = "dictionary" if best in figures["dictionaries"] else "draft"
    gap = speeds(figures, found["fast"])[found["draft"]].value - now.value
    # Where drafting slows down even the fastest task, its speed is nothing to come up to.
    worth = gap > 0 and now.value + gap > plain.value
    closed = f", which closes {min(1.0, (ways[best].value - now.value) / gap):.0%} of the gap" if worth else ""
    beside = ", beside 1.00 without drafting" if now.value < plain.value else ""
    return f"what helps it most is the {kind} {best}, at {ways[best].value:.2f}{closed or beside}"


def _of_text(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict where no draft could be compared with the target but on text."""
    draft = next(iter(figures["drafts"]))
    ratios = {
        task: found["bits_per_byte"] / figures["tasks"][task]["bits_per_byte"]
        for task, found in figures["drafts"][draft]["tasks"].items()
    }
    worst, best = max(ratios, key=ratios.__getitem__), min(ratios, key=ratios.__getitem__)
    rest = f", {ratios[best]:.2f} times for {best}" if len(ratios) > 1 else ""
    sentence = (
        f"Speed is not known, since {draft} has another tokenizer and no alignment was given: on text alone, {draft} "
        f"needs {ratios[worst]:.2f} times the target's bits per byte for {worst}{rest}."
    )
    return {"sentence": sentence, "draft": draft, "slow": None, "fast": None, "helps": None}
