"""What drafting yields: acceptance, speed, break-even, languages side by side.

Source: paper on cross-family speculative decoding for Polish, Tables 2 to 6 and 8 to 11, whose layout this follows.
"""

from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise

import pandas as pd

from spectool.measure.intervals import BreakEven, Estimate, break_even, mean_interval
from spectool.measure.page import NONE, cell
from spectool.measure.report.trials import Frame, Trials, per, pooled_acceptance, pooled_tokens_per_pass

BUCKETS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7)  # lower ends, as in the paper's Table 6


def speedup(some: Frame) -> Estimate:
    """Return the mean speed-up of trials."""
    return mean_interval(some.speedup)


def by_kind(
    here: Frame, spell: Callable[[Frame], str], more: Callable[[Frame], dict[str, str]] = lambda some: {}
) -> Frame:
    """Lay out configurations down, kinds of prompts across, all of them last.

    Args:
        here: Trials of a target and a language.
        spell: From the trials of a configuration and a kind to a cell.
        more: Further columns, from all trials of a configuration.
    """
    kinds = here.kind.unique() if here.kind.nunique() > 1 else ()

    def row(some: Frame) -> dict[str, str]:
        of_kinds = dict(list(some.groupby("kind")))
        found = {kind: spell(of_kinds[kind]) if kind in of_kinds else NONE for kind in kinds}
        return found | {"all": spell(some)} | more(some)

    return per(here, "label", row)


def speed(trials: Trials) -> dict[str, Frame]:
    """Tables 3, 4 and 11: speed-up by configuration and kind."""
    return trials.by_scope(lambda here: by_kind(here, lambda some: cell(speedup(some))))


def rates(trials: Trials) -> dict[str, Frame]:
    """The same in tokens per second, plain decoding first."""
    return trials.by_scope(lambda here: by_kind(here, lambda some: cell(some.rate.mean(), ",.1f")), plain=True)


def acceptance(trials: Trials) -> dict[str, Frame]:
    """Tables 2, 4 and 11: acceptance by configuration and kind."""

    def spell(some: Frame) -> str:
        known = some.acceptance.dropna()
        return cell(mean_interval(known), ".0%") if len(known) else NONE

    def pooled(some: Frame) -> dict[str, str]:
        return {"pooled": cell(pooled_acceptance(some), ".0%")}

    return trials.by_scope(lambda here: by_kind(here, spell, pooled))


def draft_length(trials: Trials) -> dict[str, Frame]:
    """Table 4: what a longer draft changes; nothing where only one length was measured."""
    lengths = sorted(trials.drafted.k.dropna().astype(int).unique())

    def row(some: Frame) -> dict[str, str]:
        cells, speedups = {}, some.groupby("k").speedup.mean()
        for k in lengths:
            of_length = some[some.k == k]
            cells[f"accepted, k = {k}"] = cell(pooled_acceptance(of_length), ".0%")
            cells[f"speed-up, k = {k}"] = cell(speedup(of_length)) if len(of_length) else NONE
        return cells | {"fastest k": f"{speedups.idxmax():.0f}"}

    if len(lengths) < 2:
        return {}
    return trials.by_scope(lambda here: per(here[here.k.notna()], "name", row, "drafter"))


def buckets(trials: Trials) -> dict[str, Frame]:
    """Tables 6 and 8 to 10: mean speed-up by acceptance, and how many prompts have it."""
    names = [f"below {BUCKETS[1]:.0%}", *(f"{a:.0%} to {b:.0%}" for a, b in pairwise(BUCKETS[1:]))]

    names.append(f"{BUCKETS[-1]:.0%} and more")

    def row(some: Frame) -> dict[str, str]:
        found = [some.speedup[some.acceptance.map(bucket) == number] for number in range(len(names))]
        spelt = (f"{seen.mean():.2f} ({len(seen)})" if len(seen) else NONE for seen in found)
        return dict(zip(names, spelt, strict=True))

    return trials.by_scope(lambda here: per(here, "label", row))


def bucket(alpha: float) -> int:
    """Return the number of the bucket that an acceptance rate falls into; that of none is -1.

    >>> [bucket(alpha) for alpha in (0.0, 0.299, 0.3, 0.69, 0.7, 1.0, float("nan"))]
    [0, 0, 1, 4, 5, 5, -1]
    """
    return -1 if alpha != alpha else bisect_right(BUCKETS, alpha) - 1


def break_evens(trials: Trials) -> dict[str, Frame]:
    """Tables 5 and 11: the acceptance from which on drafting pays."""
    return trials.by_scope(lambda here: by_kind(here, lambda some: str(break_even_of(some) or NONE)))


def break_even_of(some: Frame) -> BreakEven | None:
    """Return the break-even point of some trials."""
    seen = some[some.acceptance.notna()]
    return break_even(seen.acceptance.tolist(), seen.rate.tolist(), seen.plain_rate.tolist())


def languages(trials: Trials) -> Frame | None:
    """Languages side by side, with the configurations that several of them have; None for one language."""
    if trials.drafted.language.nunique() < 2:
        return None
    last = "the fastest of all"
    columns: dict[str, Frame] = {}
    for model, language in sorted(trials.scopes, key=lambda scope: scope[1]):
        here = trials.drafted[(trials.drafted.model == model) & (trials.drafted.language == language)]
        fastest = here[here.label == here.groupby("label").speedup.mean().idxmax()].assign(label=last)
        rows = per(pd.concat([here, fastest]), "label", _side)
        columns |= {f"{trials.scope_name(model, language)}: {name}": rows[name] for name in rows}
    table = pd.DataFrame(columns).reindex([*trials.drafted.label.unique(), last]).rename_axis("configuration")
    shared = table.notna().sum(axis=1) > len(rows.columns)
    return table[shared].fillna(NONE)


def _side(some: Frame) -> dict[str, str]:
    return {
        "accepted": cell(pooled_acceptance(some), ".0%"),
        "tokens per pass": cell(pooled_tokens_per_pass(some)),
        "speed-up": cell(speedup(some)),
    }
