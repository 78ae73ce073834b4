"""The options of a tuning, and which of them fit together."""

from dataclasses import dataclass
from typing import Literal, get_args

from spectool import SpectoolError
from spectool.lab.training.options import RunOptions

Supervision = Literal["text", "distribution"]
Objective = Literal["mean", "s-cdf"]
Weight = Literal["cross-entropy", "kl"]
SUPERVISIONS, OBJECTIVES, WEIGHTS = map(get_args, (Supervision, Objective, Weight))


@dataclass(frozen=True, kw_only=True)
class TuneOptions(RunOptions):
    """How a draft is tuned."""

    on: Supervision = "text"
    objective: Objective = "mean"
    weigh_by: Weight = "cross-entropy"  # what s-CDF weighs tasks by
    rate: float = 1e-4  # peak learning rate
    batch: int = 8  # rows of each task in a step
    length: int = 128  # tokens of a row of text, at most
    valid_rows: int = 64  # held-out rows of each task


def check_tuning(tasks: int, options: TuneOptions) -> None:
    """Check that the objective has tasks to weigh, and the figure to weigh them by.

    Raises:
        SpectoolError: It does not.
    """
    if options.objective == "s-cdf" and tasks < 2:
        raise SpectoolError(
            "--objective s-cdf weighs tasks by their distance to the best one: expected two or more --corpus, got "
            f"{tasks}. Give a --corpus NAME=SPEC for each task, or --objective mean"
        )
    if options.weigh_by == "kl" and options.on != "distribution":
        raise SpectoolError(
            f"--weigh-by kl needs the target's probabilities: expected --on distribution, got --on {options.on}. Give "
            "--on distribution, or --weigh-by cross-entropy"
        )
