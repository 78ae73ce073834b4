"""Acceptance, speed-up and break-even by configuration and kind of text; what passes commit, and where drafts fail.

Every table takes the `TrialFrames` of a run and gives a data frame whose index names its rows, or None if the run has
nothing for it.

Source: paper on cross-family speculative decoding for Polish, Tables 2 to 6 and 8 to 11, whose layout this follows.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise

import pandas as pd

from spectool.lab.cost_model import geometric_tokens
from spectool.lab.least_squares import BreakEven, break_even
from spectool.lab.paper_tables.trials import Frame, TrialFrames
from spectool.measure.intervals import ENOUGH_PROMPTS, Estimate, geometric_mean, mean_interval, speedup_interval
from spectool.measure.page import NONE, cell

_SHOWN = 8  # places of a draft
_FIRST = 16  # tokens in the first range of positions; each further range is as long as all before it
_BUCKETS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7)  # lower ends, as in the paper's Table 6
_BUCKET_NAMES = (
    f"below {_BUCKETS[1]:.0%}",
    *(f"{low:.0%} to {high:.0%}" for low, high in pairwise(_BUCKETS[1:])),
    f"{_BUCKETS[-1]:.0%} and more",
)


def speed_by_kind(frames: TrialFrames) -> Frame:
    """Tables 3, 4 and 11: speed-up by configuration and kind."""
    return _by_kind(frames, lambda some: spell(speedup_interval(some.speedup)))


def acceptance_by_kind(frames: TrialFrames) -> Frame:
    """Tables 2, 4 and 11: acceptance by configuration and kind, mean over prompts."""

    def mean(some: Frame) -> str:
        known = some.acceptance.dropna()
        return spell(mean_interval(known), ".0%") if len(known) else NONE

    return _by_kind(frames, mean)


def break_evens(frames: TrialFrames) -> Frame:
    """Tables 5 and 11: the acceptance from which drafting pays."""
    return _by_kind(frames, lambda some: str(break_even_of(some) or NONE))


def draft_length(frames: TrialFrames) -> Frame | None:
    """Table 4: what a longer draft changes; None if only one length was measured."""
    fixed = frames.trials[frames.trials.k.notna()]
    lengths = sorted(fixed.k.astype(int).unique())

    def row(some: Frame) -> dict[str, str]:
        cells = {}
        for k in lengths:
            here = some[some.k == k]
            cells[f"accepted, k = {k}"] = cell(_pooled(here), ".0%")
            cells[f"speed-up, k = {k}"] = spell(speedup_interval(here.speedup)) if len(here) else NONE
        return cells | {"fastest k": f"{some.groupby('k').speedup.agg(geometric_mean).idxmax():.0f}"}

    return _rows(fixed, ["scope", "name"], row) if len(lengths) > 1 else None


def buckets(frames: TrialFrames) -> Frame:
    """Tables 6 and 8 to 10: mean speed-up by acceptance, with the number of prompts."""

    def row(some: Frame) -> dict[str, str]:
        found = some.speedup.groupby(bucket(some.acceptance), observed=False)
        return {name: f"{geometric_mean(seen):.2f} ({len(seen)})" if len(seen) else NONE for name, seen in found}

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


def by_place(frames: TrialFrames) -> Frame | None:
    """Share of draft tokens accepted at each place of a draft, of those that the target looked at."""
    longest = min(_SHOWN, frames.cycles.proposed.max())

    def row(some: Frame) -> dict[str, str]:
        seen, found = _cycles_of(frames, some), {}
        for place in range(1, longest + 1):
            examined = seen[(seen.proposed >= place) & (seen.accepted >= place - 1)]
            share = (examined.accepted >= place).mean() if len(examined) >= ENOUGH_PROMPTS else None
            found[f"token {place}"] = cell(share, ".0%")
        return found

    return _rows(frames.trials, ["scope", "label"], row) if longest else None


def by_position(frames: TrialFrames) -> Frame:
    """Share of draft tokens accepted, by the number of output tokens before the draft."""
    places = frames.cycles.position.map(position_range)
    names = {
        place: f"{_FIRST * 2 ** (place - 1) if place else 0} to {_FIRST * 2**place - 1}"
        for place in sorted(places.unique())
    }

    def row(some: Frame) -> dict[str, str]:
        seen = _cycles_of(frames, some)
        return {name: cell(_pooled(seen[places[seen.index] == place]), ".0%") for place, name in names.items()}

    return _rows(frames.trials, ["scope", "label"], row)


def by_bits(frames: TrialFrames) -> Frame | None:
    """Figures of each draft model next to the bits of both sides' weights; None if all have the same."""
    bits, draft_bits = (frames.run.manifest.statistics.get(name, {}) for name in ("bits", "draft_bits"))
    rows = {}
    for (model, drafter), some in frames.trials.groupby(["model", "drafter"], sort=False):
        if drafter in draft_bits.get(model, {}):
            sides = {"target's bits": bits.get(model), "draft's bits": draft_bits[model][drafter]}
            rows[f"{model}, {drafter}"] = {
                **{side: " and ".join(map(str, of)) if of else "not quantised" for side, of in sides.items()},
                "accepted": cell(_pooled(some), ".0%"),
                "speed-up": spell(speedup_interval(some.speedup)),
            }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("target, draft")
    return table if len(table) and table.iloc[:, :2].nunique().max() > 1 else None


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


def break_even_of(some: Frame) -> BreakEven | None:
    """The break-even point of some trials."""
    seen = some[some.acceptance.notna()]
    return break_even(seen.acceptance.tolist(), seen.rate.tolist(), seen.plain_rate.tolist())


def agreement(cycles: Frame) -> float | None:
    """Share of draft tokens accepted among those that the target looked at; None if there were none.

    A rejection ends a cycle, and the tokens after it are not looked at. So this is the ``a`` of the geometric
    expectation, and more than the acceptance rate, which counts them.
    """
    accepted = cycles.accepted.sum()
    examined = accepted + (cycles.accepted < cycles.proposed).sum()
    return float(accepted / examined) if examined else None


def expected_tokens(cycles: Frame) -> float | None:
    """Tokens per pass if every draft token were accepted independently with the same probability.

    Each cycle counts with the tokens that it proposed, which may be fewer than k.
    """
    probability = agreement(cycles)
    if probability is None:
        return None
    return float(cycles.proposed.map(lambda proposed: geometric_tokens(probability, proposed)).mean())


def position_range(position: int) -> int:
    """Number of the range that a position in the text lies in.

    >>> [position_range(position) for position in (0, 15, 16, 31, 32, 63, 64)]
    [0, 0, 1, 1, 2, 2, 3]
    """
    return (position // _FIRST).bit_length()


def _by_kind(frames: TrialFrames, cell_of: Callable[[Frame], str]) -> Frame:
    """Configurations down, kinds of prompts across, all of them last."""
    kinds = frames.trials.kind.unique()

    def row(some: Frame) -> dict[str, str]:
        of_kinds = dict(list(some.groupby("kind")))
        found = {kind: cell_of(of_kinds[kind]) if kind in of_kinds else NONE for kind in kinds if len(kinds) > 1}
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
