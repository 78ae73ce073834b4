"""Acceptance, speed-up and break-even by configuration and kind of text, and what a pass commits.

Every table is made from the `TrialFrames` of a run. It is a data frame whose index names its rows, or None if the run
has nothing for it.

Source: paper on cross-family speculative decoding for Polish, Tables 2 to 11, whose layout this follows.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from statistics import geometric_mean
from typing import Any

import pandas as pd

from spectool.lab.paper_tables.cost_model import (
    agreement,
    break_even_of,
    expected_tokens,
    fit_cost,
    fixed_lengths,
    geometric_tokens,
    mean_interval,
)
from spectool.lab.paper_tables.trials import Frame, TrialFrames
from spectool.measure.intervals import Estimate, speedup_interval

NO_FIGURE = "—"
_ABSURD = 10.0  # a break-even acceptance from here on is only reported as large
_BUCKETS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7)  # lower ends, as in the paper's Table 6
_BUCKET_NAMES = (
    f"below {_BUCKETS[1]:.0%}",
    *(f"{low:.0%} to {high:.0%}" for low, high in pairwise(_BUCKETS[1:])),
    f"{_BUCKETS[-1]:.0%} and more",
)


def cell(value: Any, spec: str = ".2f") -> str:
    """A figure as text, or `NO_FIGURE` if there is none.

    >>> cell(1.2345), cell(0.4157, ".0%"), cell(None), cell(float("nan"))
    ('1.23', '42%', '—', '—')
    """
    return NO_FIGURE if value is None or value != value else format(value, spec)


def speed_by_kind(frames: TrialFrames) -> Frame:
    """Tables 3, 4 and 11: speed-up by configuration and kind."""
    return _by_kind(frames, lambda some: spell(speedup_interval(some.speedup)))


def acceptance_by_kind(frames: TrialFrames) -> Frame:
    """Tables 2, 4 and 11: acceptance by configuration and kind, mean over prompts."""

    def mean(some: Frame) -> str:
        known = some.acceptance.dropna()
        return spell(mean_interval(known), ".0%") if len(known) else NO_FIGURE

    return _by_kind(frames, mean)


def break_evens(frames: TrialFrames) -> Frame:
    """Tables 5 and 11: the acceptance from which drafting pays."""
    return _by_kind(frames, lambda some: str(break_even_of(some) or NO_FIGURE))


def draft_length(frames: TrialFrames) -> Frame | None:
    """Table 4: what a longer draft changes; None if only one length was measured."""
    fixed = frames.trials[frames.trials.k.notna()]
    lengths = sorted(fixed.k.astype(int).unique())

    def row(some: Frame) -> dict[str, str]:
        cells = {}
        for k in lengths:
            here = some[some.k == k]
            cells[f"accepted, k = {k}"] = cell(_pooled(here), ".0%")
            cells[f"speed-up, k = {k}"] = spell(speedup_interval(here.speedup)) if len(here) else NO_FIGURE
        return cells | {"fastest k": f"{some.groupby('k').speedup.agg(geometric_mean).idxmax():.0f}"}

    return _rows(fixed, ["scope", "drafter"], row) if len(lengths) > 1 else None


def cost_model(frames: TrialFrames) -> Frame | None:
    """Table 7: the model fitted to every drafter; None without fixed draft lengths or for few prompts."""
    some = fixed_lengths(frames.trials)
    lengths = sorted(some.k.astype(int).unique())
    rows = {}
    for drafter, seen in some.groupby("drafter", sort=False):
        found = fit_cost(seen)
        if found is None:
            continue
        row = {
            "r": spell(found.r, ".3f") + (" (timed)" if found.timed else ""),
            "r timed": cell(seen.draft_step.mean(), ".3f"),
            "β": spell(found.beta, ".3f"),
        }
        for k in lengths:
            line = break_even_of(seen[seen.k == k])
            row[f"k = {k}: r + βk"] = _share(found.model.break_even(k))
            row[f"k = {k}: exact"] = _share(found.model.exact_break_even(k))
            row[f"k = {k}: line"] = NO_FIGURE if line is None else _share(line.alpha)
        rows[drafter] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("drafter") if rows else None


def buckets(frames: TrialFrames) -> Frame:
    """Tables 6 and 8 to 10: mean speed-up by acceptance, with the number of prompts."""

    def row(some: Frame) -> dict[str, str]:
        found = some.speedup.groupby(bucket(some.acceptance), observed=False)
        return {name: f"{geometric_mean(seen):.2f} ({len(seen)})" if len(seen) else NO_FIGURE for name, seen in found}

    return _rows(frames.trials, ["scope", "label"], row)


def tokens_per_pass(frames: TrialFrames) -> Frame:
    """Tokens per pass as measured, next to the geometric expectation for the tokens proposed and for k."""

    def row(some: Frame) -> dict[str, str]:
        seen, k = _cycles_of(frames, some), some.k.iloc[0]
        probability = agreement(seen)
        asked = None if probability is None or pd.isna(k) else geometric_tokens(probability, int(k))
        return {
            "measured": cell(some.tokens.sum() / some.passes.sum()),
            "geometric": cell(expected_tokens(seen)),
            "geometric at k": cell(asked),
            "accepted": cell(_pooled(some), ".0%"),
            "a": cell(probability, ".0%"),
            "of the output": cell(some.accepted.sum() / some.tokens.sum(), ".0%"),
        }

    return _rows(frames.trials, ["scope", "label"], row)


def spell(found: Estimate, spec: str = ".2f") -> str:
    """A mean with half the width of its interval.

    >>> spell(Estimate(1.064, 1.012, 1.116, 9)), spell(Estimate(0.41, 0.36, 0.46, 9), ".0%")
    ('1.06 ± 0.05', '41 ± 5%')
    >>> spell(Estimate(1.06, None, None, 1))
    '1.06'
    """
    value = format(found.value, spec)
    if found.low is None or found.high is None:
        return value
    return f"{value.removesuffix('%')} ± {(found.high - found.low) / 2:{spec}}"


def bucket(alphas: Frame) -> Frame:
    """The buckets that acceptance rates fall into, by name; NaN falls into none."""
    return pd.cut(alphas, [*_BUCKETS, float("inf")], right=False, labels=_BUCKET_NAMES)


def _by_kind(frames: TrialFrames, cell_of: Callable[[Frame], str]) -> Frame:
    """Configurations down, kinds of prompts across, all of them last."""
    kinds = frames.trials.kind.unique()

    def row(some: Frame) -> dict[str, str]:
        of_kinds = dict(list(some.groupby("kind")))
        found = {kind: cell_of(of_kinds[kind]) if kind in of_kinds else NO_FIGURE for kind in kinds if len(kinds) > 1}
        return found | {"all": cell_of(some)}

    return _rows(frames.trials, ["scope", "label"], row)


def _rows(frame: Frame, names: list[str], row: Callable[[Frame], Mapping[str, str]]) -> Frame:
    """A row for each combination of ``names``, and of temperatures if there are several."""
    keys = [*names, "temperature"] if frame.temperature.nunique() > 1 else names
    rows = {key: row(some) for key, some in frame.groupby(keys, sort=False)}
    return pd.DataFrame(list(rows.values()), pd.MultiIndex.from_tuples(rows, names=keys))


def _cycles_of(frames: TrialFrames, some: Frame) -> Frame:
    first = some.iloc[0]
    cycles = frames.cycles
    same = (cycles.scope == first.scope) & (cycles.label == first.label) & (cycles.temperature == first.temperature)
    return cycles[same]


def _pooled(some: Frame) -> float | None:
    """Accepted / proposed over all rows together; None if nothing was proposed."""
    return float(some.accepted.sum() / some.proposed.sum()) if some.proposed.any() else None


def _share(alpha: float) -> str:
    return cell(alpha, ".0%") if alpha < _ABSURD else f"over {_ABSURD:,.0%}"
