"""What each task gains or loses, which task is slow and by how much, and what would help it.

The gap is between the fastest and the slowest task with the first draft. Any other draft, any dictionary, or not
drafting at all could help the slow task. A dictionary counts with the tokens per pass of a replay, because its look-ups
cost almost nothing. A difference is beyond chance if equal tasks would show it in fewer than one of 20 draws of
equally many rows (Student's t), with a correction for comparing all pairs of tasks, or all drafters, at once.
"""

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any, NamedTuple

from scipy import stats

NO_DRAFTING = "no drafting"
_CHANCE = 0.05  # of a false alarm


class Mean(NamedTuple):
    """A mean over rows of text, such as an expected speed against plain decoding."""

    value: float  # the mean
    error: float  # its standard error; 0 where it is known
    rows: int  # rows that it is the mean of

    def beyond(self, other: "Mean", comparisons: int) -> bool:
        """Whether it is larger than another one beyond chance, where this many comparisons are made (Welch's test)."""
        if not self.error and not other.error:
            return self.value > other.value
        means = ((one.value, one.error * math.sqrt(one.rows), one.rows) for one in (self, other))
        found = stats.ttest_ind_from_stats(*next(means), *next(means), equal_var=False)
        return bool(self.value > other.value and found.pvalue < _CHANCE / comparisons)


_PLAIN_SPEED = Mean(1.0, 0.0, 2)


def speeds(figures: Mapping[str, Any]) -> dict[str, dict[str, Mean]]:
    """The speed of each task with each drafter and with none, except with dictionaries built from the same text."""
    found = {task: {NO_DRAFTING: _PLAIN_SPEED} for task in figures["tasks"]}
    for name, draft in figures["drafts"].items():
        for task, at in draft["tasks"].items():
            found[task][name] = Mean(at["speedup"], at["speedup_error"], at["rows"])
    for name, dictionary in figures["dictionaries"].items():
        for task, at in dictionary["tasks"].items():
            if not at["built_from_it"]:
                found[task][name] = Mean(at["tokens_per_pass"], at["error"], figures["tasks"][task]["rows"])
    return found


def verdict(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict as a sentence, the draft, the slow and the fast task, and what helps (None where nothing does)."""
    draft, tasks = next(iter(figures["drafts"])), list(figures["tasks"])
    by_task = {task: of[draft] for task, of in speeds(figures).items()}
    ranked = sorted(tasks, key=lambda task: by_task[task].value)
    pairs = list(combinations(ranked, 2))
    apart = [(slow, fast) for slow, fast in pairs if by_task[fast].beyond(by_task[slow], len(pairs))]
    ends = ranked[0], ranked[-1]
    slow, fast = max(apart, key=lambda pair: by_task[pair[1]].value - by_task[pair[0]].value, default=ends)
    found: dict[str, Any] = {"draft": draft, "slow": slow, "fast": fast, "helps": None}
    if len(tasks) == 1:
        compared_with = f"One task alone was measured; {_helped(figures, found)}."
    elif not apart:
        found |= {"slow": None, "fast": None}
        compared_with = "No task is slower than another beyond chance."
    else:
        share = 1 - by_task[slow].value / by_task[fast].value
        compared_with = f"{slow} is slow: {share:.0%} less than {fast}; {_helped(figures, found)}."
    return {"sentence": f"{_against_plain(draft, by_task)} {compared_with}", **found}


def _against_plain(draft: str, by_task: Mapping[str, Mean]) -> str:
    """What each task gains or loses against plain decoding, in words."""
    values = [f"{speed.value:.2f} for {task}" for task, speed in by_task.items()]
    said = f"With {draft}, the expected speed is {', '.join(values)}, where plain decoding's is 1."
    slower = [task for task, speed in by_task.items() if _PLAIN_SPEED.beyond(speed, len(by_task))]
    if not slower:
        return said
    whom = "every task" if len(slower) == len(by_task) > 1 else ", ".join(slower)
    return f"{said} Not drafting at all is faster for {whom}."


def _helped(figures: Mapping[str, Any], found: dict[str, Any]) -> str:
    """What helps the slow task most, in words; also recorded in ``found``."""
    by_task, draft = speeds(figures), found["draft"]
    fastest, others = by_task[found["fast"]][draft], by_task[found["slow"]]
    plain, now = others[NO_DRAFTING], others.pop(draft)
    able = [
        name
        for name, speed in others.items()
        if speed.beyond(now, len(others)) and (name == NO_DRAFTING or speed.beyond(plain, len(others)))
    ]
    if not able:
        return "nothing measured helps it" if len(others) > 1 else "nothing else was measured that could help it"
    best = max(able, key=lambda name: others[name].value)
    found["helps"] = best
    if best == NO_DRAFTING:
        return "nothing measured is faster for it than not drafting at all"
    kind = "dictionary" if best in figures["dictionaries"] else "draft"
    gap = fastest.value - now.value
    # Where drafting slows down even the fastest task, there is no gap worth closing.
    pays = gap > 0 and now.value + gap > plain.value
    closed = f", which closes {min(1.0, (others[best].value - now.value) / gap):.0%} of the gap" if pays else ""
    compared = ", compared with 1.00 without drafting" if now.value < plain.value else ""
    return f"what helps it most is the {kind} {best}, at {others[best].value:.2f}{closed or compared}"
