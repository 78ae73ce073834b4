"""How every task fares: a row for each measurement and task, in a Parquet file, a table and a plot.

    tasks.parquet    step, task, divergence, kl, acceptance, proxy, unfairness, unfairness_kl, acceptance_variance

``divergence`` is D_T, the mean cross-entropy of draft against target on held-out text, nats; ``kl`` is KL(p || q);
``acceptance`` is alpha_T, the share of drawn drafts that rejection sampling accepts, and ``proxy`` what `acceptance`
estimates from short greedy drafts, both 0 to 1. ``unfairness`` and ``unfairness_kl`` (U of D_T and of KL, nats
squared) and ``acceptance_variance`` are of all tasks of the step. Null where the target's distribution, or a shared
vocabulary, is not there.
"""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spectool.artifacts.console import table
from spectool.artifacts.replacing import renaming
from spectool.build.training.tuning.corrective import unfairness
from spectool.build.training.tuning.divergence import Divergence

TASKS = "tasks.parquet"
_FIGURES = ("divergence", "kl", "acceptance", "proxy", "unfairness", "unfairness_kl", "acceptance_variance")
_SCHEMA = pa.schema([("step", pa.int64()), ("task", pa.string()), *((name, pa.float64()) for name in _FIGURES)])
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito's palette


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


def points_of(
    step: int, names: Sequence[str], measured: Sequence[Divergence], proxies: Sequence[float | None]
) -> list[TaskPoint]:
    """Return the rows of a measurement, the figures of all tasks with each."""
    distances = [found.kl for found in measured if found.kl is not None]
    accepted = [found.acceptance for found in measured if found.acceptance is not None]
    of_all = (
        unfairness([found.cross_entropy for found in measured]),
        unfairness(distances) if len(distances) == len(names) else None,
        float(np.var(accepted)) if len(accepted) == len(names) else None,
    )
    rows = zip(names, measured, proxies, strict=True)
    return [TaskPoint(step, name, f.cross_entropy, f.kl, f.acceptance, proxy, *of_all) for name, f, proxy in rows]


def write_tasks(path: Path, points: Sequence[TaskPoint]) -> None:
    """Write the rows in one step."""
    with renaming(path) as partial:
        pq.write_table(pa.Table.from_pylist([p._asdict() for p in points], _SCHEMA), partial, compression="zstd")


def read_tasks(path: Path) -> list[TaskPoint]:
    """Read what `write_tasks` wrote."""
    return [TaskPoint(**row) for row in pq.read_table(path, memory_map=False, partitioning=None).to_pylist()]


def before_and_after(before: Sequence[TaskPoint], after: Sequence[TaskPoint]) -> str:
    """Lay out two measurements of the same tasks beside each other."""
    header = ["", "D_T before", "after", "KL before", "after", "acceptance before", "after"]
    pairs = list(zip(before, after, strict=True))
    rows = [
        [
            one.task,
            *(_number(point.divergence) for point in (one, two)),
            *(_number(point.kl) for point in (one, two)),
            *(_percent(point.acceptance) for point in (one, two)),
        ]
        for one, two in pairs
    ]
    spread = [point.acceptance_variance for point in pairs[0]]
    lines = [table(header, rows)]
    if len(rows) > 1:
        lines.append("unfairness U         " + " → ".join(f"{point.unfairness:.5g}" for point in pairs[0]))
    of_kl = [point.unfairness_kl for point in pairs[0]]
    if len(rows) > 1 and None not in of_kl:
        lines.append("U of KL              " + " → ".join(f"{value:.5g}" for value in of_kl))
    if len(rows) > 1 and None not in spread:
        lines.append("acceptance variance  " + " → ".join(f"{value:.5g}" for value in spread))
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def write_task_plots(points: Sequence[TaskPoint], out: Path) -> None:
    """Draw divergence and acceptance of every task, and unfairness, over steps: ``tasks.svg`` and ``tasks.png``."""
    import matplotlib

    from spectool.build.training.curve_plot import STYLE

    with matplotlib.rc_context(STYLE):
        figure = _figure(points)
        for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            drawn = BytesIO()
            figure.savefig(drawn, format=kind, dpi=200, metadata=metadata)
            (out / f"tasks.{kind}").write_bytes(drawn.getvalue())


def _figure(points: Sequence[TaskPoint]) -> Any:
    from matplotlib.figure import Figure

    panels = {"divergence": "D, nats per token", "acceptance": "acceptance", "unfairness": "unfairness U, nats²"}
    shown = {name: label for name, label in panels.items() if getattr(points[0], name) is not None}
    figure = Figure(figsize=(3.4 * len(shown), 3.0), layout="constrained")
    axes = figure.subplots(1, len(shown), squeeze=False)[0]
    names = list(dict.fromkeys(point.task for point in points))
    for panel, (figure_name, label) in zip(axes, shown.items(), strict=True):
        for number, name in enumerate(names[:1] if figure_name == "unfairness" else names):
            line = [(point.step, getattr(point, figure_name)) for point in points if point.task == name]
            colour = "#444444" if figure_name == "unfairness" else _COLOURS[number % len(_COLOURS)]
            panel.plot(*zip(*line, strict=True), "o-", markersize=3, color=colour, label=name)
        panel.set_xlabel("steps")
        panel.set_ylabel(label)
    axes[0].legend()
    return figure
