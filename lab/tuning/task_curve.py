"""How each task develops: a row for each measurement and task, and one for each step and task.

    tasks.parquet    step, task, divergence, kl, acceptance, proxy, unfairness, unfairness_kl, acceptance_variance
    steps.parquet    step, task, divergence, reference

``divergence`` is D_T, the mean cross-entropy of draft against target on held-out text, nats; ``kl`` is KL(p || q).
``acceptance`` is alpha_T, the share of drawn drafts that rejection sampling accepts; ``proxy`` is what
`acceptance_proxy` estimates from short greedy drafts, null without a shared vocabulary. Both are between 0 and 1.
``unfairness`` and ``unfairness_kl`` (U of D_T and of KL, nats squared) and ``acceptance_variance`` are of all tasks of
the step.

In ``steps.parquet`` the divergence is that of the mini-batch before the step, by which s-CDF weighs the task. The task
with the smallest one is the ``reference`` of the step: 1, others 0.
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
    kl: float
    acceptance: float
    proxy: float | None
    unfairness: float
    unfairness_kl: float
    acceptance_variance: float


class StepPoint(NamedTuple):
    """A task's mini-batch in a step; see the module for the units."""

    step: int
    task: str
    divergence: float
    reference: int


def points_of(
    step: int, names: Sequence[str], measured: Sequence[Divergence], proxies: Sequence[float | None]
) -> list[TaskPoint]:
    """The rows of a measurement; each has the figures of all tasks."""
    entropies, distances, acceptances, _ = zip(*measured, strict=True)
    of_all = unfairness(entropies), unfairness(distances), float(np.var(acceptances))
    columns = zip(names, entropies, distances, acceptances, proxies, strict=True)
    return [TaskPoint(step, *figures, *of_all) for figures in columns]


def before_and_after(record: Mapping[str, Any]) -> str:
    """A table of both measurements in the record of a tuning, and how often each task was the reference."""
    header = ["", "D_T before", "after", "KL before", "after", "acceptance before", "after", "reference"]
    formats = {"divergence": ".4f", "kl": ".4f", "acceptance": ".1%"}
    pairs = list(zip(*record["measured"].values(), strict=True))
    rows = []
    for pair in pairs:
        figures = [format(point[name], form) for name, form in formats.items() for point in pair]
        task = pair[0]["task"]
        rows.append([task, *figures, f"{record['references'][task]:.1%}"])
    of_all = {"unfairness U": "unfairness", "U of KL": "unfairness_kl", "acceptance variance": "acceptance_variance"}
    lines = [table(header, rows)]
    for label, name in of_all.items() if len(rows) > 1 else ():
        lines.append(f"{label:<21}" + " → ".join(f"{point[name]:.5g}" for point in pairs[0]))
    return "\n".join(lines)
