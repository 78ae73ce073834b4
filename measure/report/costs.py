"""What drafting costs: the published cost model fitted to a run, time, energy and memory.

    speedup = (1 + alpha k) / ((k + 1) r + 1 + beta k^2)

is linear in its constants when solved for the cost: (1 + alpha k) / speedup - 1 = (k + 1) r + beta k^2.

Source: paper on cross-family speculative decoding for Polish, section 6.2, equations 4 to 6, and Tables 7 and 12.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import curve_fit

from spectool.artifacts.benchmark import PLAIN
from spectool.measure.intervals import Estimate, interval, mean_interval
from spectool.measure.page import NONE, cell
from spectool.measure.report.tables import break_even_of
from spectool.measure.report.trials import Frame, Trials, by_model, per, table_of
from spectool.runtime.draft_length.cost_model import CostModel

_ABSURD = 10.0  # an acceptance from here on is only said to be large


class CostFit(NamedTuple):
    """The model's constants."""

    r: Estimate  # a draft step, in plain steps, with its 95% interval
    beta: Estimate  # what grows with the square of the draft length, likewise
    timed: bool  # whether r is the drafter's own time, one draft length being too few to tell r and beta apart

    @property
    def model(self) -> CostModel:
        """The model with these constants."""
        return CostModel(self.r.value, self.beta.value)


def fit_cost(trials: Frame) -> CostFit | None:
    """Fit r and beta by ordinary least squares; prompts are taken as independent.

    Args:
        trials: Of fixed draft lengths, with k, acceptance, speedup and the drafter's time in plain steps, draft_step.

    Returns:
        None for fewer than 3 trials.
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
    r, beta = (interval(float(value), float(error), n - 2, n) for value, error in zip(constants, errors, strict=True))
    return CostFit(r, beta, timed=False)


def fixed_lengths(trials: Frame) -> Frame:
    """Return the trials of fixed draft lengths that proposed something, with ``draft_step``.

    Their speed-up is that of their cycles: without the time in which the drafter reads the prompt.
    """
    some = trials[trials.k.notna() & trials.acceptance.notna()]
    draft_step = some.draft_seconds / (some.passes * (some.k + 1)) * some.plain_rate
    speedup = some.speedup * some.seconds / (some.seconds - some.draft_prompt_seconds)
    return some.assign(draft_step=draft_step, speedup=speedup)


def cost_model(trials: Trials) -> Frame | None:
    """Table 7: the published model fitted to every drafter and strategy.

    Returns:
        None where no draft length was fixed, or too little was measured.
    """
    statistics = trials.run.manifest.statistics
    sizes, draft_sizes = statistics.get("sizes", {}), statistics.get("draft_sizes", {})
    some = fixed_lengths(trials.drafted)
    lengths = sorted(some.k.astype(int).unique())
    rows = {}
    for (model, name), seen in some.groupby(["model", "name"], sort=False):
        found = fit_cost(seen)
        if found is None:
            continue
        draft, target = draft_sizes.get(model, {}).get(seen.drafter.iloc[0]), sizes.get(model)
        row = {
            "r": cell(found.r, ".3f") + (" (timed)" if found.timed else ""),
            "r timed": cell(seen.draft_step.mean(), ".3f"),
            "r by size": cell(draft / target if draft and target else None, ".3f"),
            "β": cell(found.beta, ".3f"),
        }
        for k in lengths:
            line = break_even_of(seen[seen.k == k])
            row[f"k = {k}: r + βk"] = _share(found.model.break_even(k))
            row[f"k = {k}: exact"] = _share(found.model.exact_break_even(k))
            row[f"k = {k}: line"] = NONE if line is None else _share(line.alpha)
        rows[f"{model}: {name}" if trials.drafted.model.nunique() > 1 else name] = row
    return table_of(rows, "drafter") if rows else None


def time_spent(trials: Trials) -> dict[str, Frame]:
    """Where the time goes, a cycle on average."""

    def row(some: Frame) -> dict[str, str]:
        step, cycle = plain_step(trials, some), cycle_seconds(some)
        parts = {name: _ms(seconds) for name, seconds in cycle.items()}
        if some.drafter.iloc[0] == PLAIN:
            parts = dict.fromkeys(parts, NONE)
        names = ("prompt_seconds", "draft_prompt_seconds", "first_token_seconds")
        reading, drafter_reading, first = (some[name].sum() / some.outputs.sum() for name in names)
        return parts | {
            "cycle": _ms(cycle.sum()),
            "in plain steps": cell(cycle.sum() / step),
            "target reads the prompt": _ms(reading),
            "drafter reads it": _ms(drafter_reading) if drafter_reading else NONE,
            "first token": _ms(reading + first),
        }

    return by_model(trials.every, lambda here: per(here, "label", row))


def plain_step(trials: Trials, some: Frame) -> float:
    """Return seconds of an average step of plain decoding, of the prompts that ``some`` have."""
    plain = trials.plain_beside(some)
    return float(plain.seconds.sum() / plain.tokens.sum())


def cycle_seconds(some: Frame) -> pd.Series:
    """Return seconds of an average cycle in the drafter, in the target's pass, and in the rest."""
    sums = some[["draft_seconds", "pass_seconds", "seconds", "draft_prompt_seconds"]].sum() / some.passes.sum()
    draft, passing, whole = sums.draft_seconds, sums.pass_seconds, sums.seconds - sums.draft_prompt_seconds
    return pd.Series({"drafting": draft, "target's pass": passing, "rest": whole - draft - passing})


def energy(trials: Trials) -> Frame:
    """Table 12: joules for a token, the change against plain decoding of the same prompts; and memory."""

    def row(some: Frame) -> dict[str, str]:
        joules, of_plain = ((seen.joules / seen.tokens).mean() for seen in (some, trials.plain_beside(some)))
        return {
            "J/token": cell(joules, ".3f"),
            "change": cell(joules / of_plain - 1, ".0%"),
            "peak memory": size(some.peak_memory.max()),
        }

    return per(trials.every, "row", row)


def size(count: float | None) -> str:
    """Spell bytes.

    >>> size(11_320_000_000), size(2_500_000), size(None)
    ('11.3 GB', '2.5 MB', '—')
    """
    if not count or count != count:
        return NONE
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _share(alpha: float) -> str:
    return cell(alpha, ".0%") if alpha < _ABSURD else f"over {_ABSURD:,.0%}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g}" if seconds < 1 else f"{1000 * seconds:,.0f}"
