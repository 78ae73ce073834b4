"""The trials of a run as data frames: one row for each prompt and configuration, and one for each cycle."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd

from spectool import ArtifactError
from spectool.measure.bench.run_file import Run
from spectool.measure.intervals import too_short

Frame: TypeAlias = Any  # pandas ships no types


@dataclass(frozen=True, eq=False)
class TrialFrames:
    """A run for tables.

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

    run: Run
    trials: Frame
    cycles: Frame


def trial_frames(run: Run) -> TrialFrames:
    """The trials and cycles of a run.

    Raises:
        ArtifactError: Every prompt has some output that is too short, or no real text.
    """
    rows, cycles = [], list[Frame]()
    for block in (each for each in run.blocks if each.counts):
        by_configuration, plain = block.by_configuration, block.plain
        for one in (by_configuration[each] for each in run.options.configurations[1:]):
            label = f"{one.drafter}, k = {one.num_draft_tokens or 'auto'}"
            names = {"scope": block.source, "temperature": block.temperature, "label": label}
            times = {name: getattr(one, name) for name in ("seconds", "draft_seconds")}
            sums = {"proposed": sum(one.proposed), "accepted": sum(one.accepted)}
            sums |= {"tokens": one.tokens, "passes": one.passes}
            rates = {"rate": one.tokens / one.seconds, "plain_rate": plain.tokens / plain.seconds}
            drafter = {"kind": block.kind, "drafter": one.drafter, "k": one.num_draft_tokens}
            rows.append(names | drafter | times | sums | rates)
            cycles.append(pd.DataFrame({**names, "proposed": one.proposed, "accepted": one.accepted}))
    if not rows:
        raise ArtifactError(f"{run.path}: {too_short(0)}")
    trials = pd.DataFrame(rows)
    trials["k"] = pd.to_numeric(trials.k)
    trials["acceptance"] = trials.accepted / trials.proposed
    trials["speedup"] = trials.rate / trials.plain_rate
    return TrialFrames(run, trials, pd.concat(cycles))
