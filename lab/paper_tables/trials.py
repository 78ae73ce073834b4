"""The trials of a run as data frames: one row for each prompt and configuration, and one for each cycle."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd

from spectool.artifacts.benchmark import PLAIN, Benchmark
from spectool.measure.intervals import LEAST
from spectool.measure.report.trials import read_trials

Frame: TypeAlias = Any  # pandas ships no types
_CONFIGURATION = ["model", "temperature", "drafter", "strategy", "num_draft_tokens"]


@dataclass(frozen=True, eq=False)
class TrialFrames:
    """A run for tables.

    ``trials`` has the fields of `spectool.measure.report.trials.Trial` as columns, and in addition:

        model, temperature, drafter, strategy   of the configuration
        k                                       draft length; NaN if chosen while decoding
        name, label                             drafter and strategy, without and with the draft length
        scope                                   target and language
        acceptance                              accepted / proposed; NaN if nothing was proposed
        rate, plain_rate                        tokens per second, and those of plain decoding in the same blocks

    ``cycles`` has the columns of `CYCLES`, with model, temperature, label and scope.
    """

    run: Benchmark
    trials: Frame
    cycles: Frame


def trial_frames(run: Benchmark) -> TrialFrames:
    """The trials and cycles of a run.

    Raises:
        ArtifactError: Nothing in it can be compared with plain decoding.
    """
    rows = []
    for one in read_trials(run).results:
        names = {"model": one.model, "temperature": one.temperature, "drafter": one.drafter, "strategy": one.strategy}
        names |= {"k": one.num_draft_tokens, "label": one.label, "name": one.label.rpartition(", k = ")[0]}
        for trial in one.trials:
            figures = {name: getattr(trial, name) for name in trial.__slots__}
            rows.append(names | figures | {"scope": f"{one.model}, {trial.language}"})
    trials = pd.DataFrame(rows)
    trials["k"] = pd.to_numeric(trials.k)
    trials["acceptance"] = trials.accepted / trials.proposed
    trials["rate"], trials["plain_rate"] = trials.tokens / trials.seconds, trials.plain_tokens / trials.plain_seconds
    return TrialFrames(run, trials, _cycles(run, trials))


def _cycles(run: Benchmark, trials: Frame) -> Frame:
    """The cycles of generations in blocks where every output has `LEAST` tokens."""
    rows = run.generations.select(["block", "order", "language", "tokens", *_CONFIGURATION]).to_pandas()
    rows = rows[rows.groupby(["block", "model"]).tokens.transform("min") >= LEAST]
    rows = rows[rows.drafter != PLAIN].rename(columns={"num_draft_tokens": "k"})
    rows["language"] = rows.language.replace("", "unnamed")
    keys = ["model", "temperature", "drafter", "strategy", "k", "language"]
    named = rows.merge(trials[[*keys, "label", "scope"]].drop_duplicates(), on=keys)
    return run.cycles.to_pandas().merge(
        named[["block", "order", "model", "temperature", "label", "scope"]], on=["block", "order"]
    )
