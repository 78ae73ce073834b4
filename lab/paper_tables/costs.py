"""The published cost model, fitted to a run.

    speedup = (1 + alpha k) / ((k + 1) r + 1 + beta k^2)

is linear in its constants when solved for the cost: (1 + alpha k) / speedup - 1 = (k + 1) r + beta k^2.

Source: paper on cross-family speculative decoding for Polish, section 6.2, equations 4 to 6, and Table 7.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import curve_fit

from spectool.lab.cost_model import CostModel
from spectool.lab.least_squares import student_interval
from spectool.lab.paper_tables.tables import break_even_of, spell
from spectool.lab.paper_tables.trials import Frame, TrialFrames
from spectool.measure.intervals import Estimate, mean_interval
from spectool.measure.page import NONE, cell

_ABSURD = 10.0  # an acceptance from here on is only said to be large


class CostFit(NamedTuple):
    """The model's constants."""

    r: Estimate  # a draft step, in plain steps, with its 95% interval
    beta: Estimate  # what grows with the square of the draft length, likewise
    timed: bool  # whether r is the drafter's own time, because one draft length cannot tell r and beta apart

    @property
    def model(self) -> CostModel:
        """The model with these constants."""
        return CostModel(self.r.value, self.beta.value)


def fit_cost(trials: Frame) -> CostFit | None:
    """R and beta by ordinary least squares, with prompts taken as independent; None for fewer than 3 trials.

    Args:
        trials: Of fixed draft lengths, with columns k, acceptance, speedup and draft_step (see `fixed_lengths`).
    """
    n = len(trials)
    if n < 3:
        return None
    k = trials.k.to_numpy(dtype=np.float64)
    cost = ((1 + trials.acceptance * trials.k) / trials.speedup - 1).to_numpy(dtype=np.float64)
    if trials.k.nunique() == 1:
        beta = (cost - (k + 1) * trials.draft_step) / k**2
        return CostFit(mean_interval(trials.draft_step), mean_interval(beta), timed=True)
    constants, covariance = curve_fit(lambda k, r, beta: (k + 1) * r + beta * k**2, k, cost)
    errors = np.sqrt(np.diag(covariance))
    r, beta = (student_interval(float(of), float(error), n - 2, n) for of, error in zip(constants, errors, strict=True))
    return CostFit(r, beta, timed=False)


def fixed_lengths(trials: Frame) -> Frame:
    """Trials of fixed draft lengths that proposed something, with ``draft_step``, the drafter's time in plain steps.

    Their speed-up is that of their cycles, without the time in which the drafter reads the prompt.
    """
    some = trials[trials.k.notna() & trials.acceptance.notna()]
    draft_step = some.draft_seconds / (some.passes * (some.k + 1)) * some.plain_rate
    speedup = some.speedup * some.seconds / (some.seconds - some.draft_prompt_seconds)
    return some.assign(draft_step=draft_step, speedup=speedup)


def cost_model(frames: TrialFrames) -> Frame | None:
    """Table 7: the model fitted to every drafter and strategy; None without fixed draft lengths or for few prompts."""
    statistics = frames.run.manifest.statistics
    sizes, draft_sizes = statistics.get("sizes", {}), statistics.get("draft_sizes", {})
    some = fixed_lengths(frames.trials)
    lengths = sorted(some.k.astype(int).unique())
    rows = {}
    for (model, name), seen in some.groupby(["model", "name"], sort=False):
        found = fit_cost(seen)
        if found is None:
            continue
        draft, target = draft_sizes.get(model, {}).get(seen.drafter.iloc[0]), sizes.get(model)
        row = {
            "r": spell(found.r, ".3f") + (" (timed)" if found.timed else ""),
            "r timed": cell(seen.draft_step.mean(), ".3f"),
            "r by size": cell(draft / target if draft and target else None, ".3f"),
            "β": spell(found.beta, ".3f"),
        }
        for k in lengths:
            line = break_even_of(seen[seen.k == k])
            row[f"k = {k}: r + βk"] = _share(found.model.break_even(k))
            row[f"k = {k}: exact"] = _share(found.model.exact_break_even(k))
            row[f"k = {k}: line"] = NONE if line is None else _share(line.alpha)
        rows[f"{model}: {name}"] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("drafter") if rows else None


def _share(alpha: float) -> str:
    return cell(alpha, ".0%") if alpha < _ABSURD else f"over {_ABSURD:,.0%}"
