"""How every task fares: a row for each measurement and task, and one for each step and task.

    tasks.parquet    step, task, divergence, kl, acceptance, proxy, unfairness, unfairness_kl, acceptance_variance
    steps.parquet    step, task, divergence, reference

``divergence`` is D_T, the mean cross-entropy of draft against target on held-out text, nats; ``kl`` is KL(p || q).
``acceptance`` is alpha_T, the share of drawn drafts that rejection sampling accepts. ``proxy`` is what `acceptance`
estimates from short greedy drafts, both 0 to 1. ``unfairness`` and ``unfairness_kl`` (U of D_T and of KL, nats squared)
and ``acceptance_variance`` are of all tasks of the step. Null where the target's distribution, or a shared vocabulary,
is not there.

In ``steps.parquet`` the divergence is that of the mini-batch before the step, by which s-CDF weighs the task. The task
with the least one is the step's ``reference``: 1, others 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from spectool.commands.console import table
from spectool.lab.tuning.corrective import unfairness
from spectool.lab.tuning.divergence import Divergence

TASKS, STEPS = "tasks.parquet", "steps.parquet"


class TaskPoint(NamedTuple):
    """A task at a step; see the module for the units."""

    step: int
    task: str
    divergence: float
    kl: float | None
    acceptance: float | None
    proxy: float | None
    unfairness: float
    unfairness_kl: float | None
    acceptance_variance: float | None


class StepPoint(NamedTuple):
    """A task's mini-batch in a step; see the module for the units."""

    step: int
    task: str
    divergence: float
    reference: int


def points_of(
    step: int, names: Sequence[str], measured: Sequence[Divergence], proxies: Sequence[float | None]
) -> list[TaskPoint]:
    """Return the rows of a measurement, the figures of all tasks with each."""
    entropies, distances, acceptances, _ = zip(*measured, strict=True)
    of_all: tuple[float, float | None, float | None] = (unfairness(entropies), None, None)
    if None not in distances:  # of all tasks or of none
        of_all = (of_all[0], unfairness(distances), float(np.var(acceptances)))
    columns = zip(names, entropies, distances, acceptances, proxies, strict=True)
    return [TaskPoint(step, *figures, *of_all) for figures in columns]


def before_and_after(record: Mapping[str, Any]) -> str:
    """Lay out the measurements of a tuning's record beside each other, and how often each task was the reference."""
    header = ["", "D_T before", "after", "KL before", "after", "acceptance before", "after", "reference"]
    formats = {"divergence": ".4f", "kl": ".4f", "acceptance": ".1%"}
    pairs = list(zip(*record["measured"].values(), strict=True))
    rows = []
    for pair in pairs:
        figures = [(point[name], form) for name, form in formats.items() for point in pair]
        said = ["" if value is None else format(value, form) for value, form in figures]
        task = pair[0]["task"]
        rows.append([task, *said, f"{record['references'][task]:.1%}"])
    of_all = {"unfairness U": "unfairness", "U of KL": "unfairness_kl", "acceptance variance": "acceptance_variance"}
    lines = [table(header, rows)]
    for label, name in of_all.items() if len(rows) > 1 else ():
        values = [point[name] for point in pairs[0]]
        if None not in values:
            lines.append(f"{label:<21}" + " → ".join(f"{value:.5g}" for value in values))
    return "\n".join(lines)
