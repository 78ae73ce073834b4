"""The trials of runs as data frames: one row for each prompt and configuration, and one for each cycle."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd

from spectool import ArtifactError
from spectool.measure.bench.results import PLAIN, TOO_SHORT, Run

Frame: TypeAlias = Any  # pandas ships no types


@dataclass(frozen=True, eq=False)
class TrialFrames:
    """Runs for tables.

    Columns of ``trials``, for the prompts that count in a verdict:

        scope, kind, temperature   source and kind of the prompt, temperature
        drafter, label, k          without and with the draft length, and the length; NaN if chosen while decoding
        tokens, passes, proposed, accepted                   counts
        seconds, draft_seconds                               times
        acceptance                 accepted / proposed; NaN if nothing was proposed
        speedup                    plain decoding's seconds per token / these
        rate, plain_rate           tokens per second, and those of plain decoding

    ``cycles`` has ``proposed`` and ``accepted`` draft tokens, with scope, temperature and label.
    """

    trials: Frame
    cycles: Frame


def trial_frames(*runs: Run) -> TrialFrames:
    """The trials and cycles of some runs of one target.

    Raises:
        ArtifactError: Every prompt has some output that is too short, or no real text.
    """
    rows, cycles = [], list[Frame]()
    counting = [(each, block) for each in runs for block in each.blocks if block.counts]
    for run, block in counting:
        by_configuration, plain = block.by_configuration, block.by_configuration[PLAIN, 0]
        for one in (by_configuration[each] for each in run.options.configurations[1:]):
            label = f"{one.drafter}, k = {one.num_draft_tokens or 'auto'}"
            names = {"scope": block.source, "temperature": block.temperature, "label": label}
            times = {name: getattr(one, name) for name in ("seconds", "draft_seconds")}
            sums = {"proposed": sum(one.proposed), "accepted": sum(one.accepted)}
            sums |= {"tokens": one.tokens, "passes": len(one.proposed) or one.tokens}
            rates = {"rate": one.tokens / one.seconds, "plain_rate": plain.tokens / plain.seconds}
            drafter = {"kind": block.kind, "drafter": one.drafter, "k": one.num_draft_tokens}
            rows.append(names | drafter | times | sums | rates)
            cycles.append(pd.DataFrame({**names, "proposed": one.proposed, "accepted": one.accepted}))
    if not rows:
        raise ArtifactError(f"{runs[0].path}: {TOO_SHORT}")
    trials = pd.DataFrame(rows)
    trials["k"] = pd.to_numeric(trials.k)
    trials["acceptance"] = trials.accepted / trials.proposed
    trials["speedup"] = trials.rate / trials.plain_rate
    return TrialFrames(trials, pd.concat(cycles))
