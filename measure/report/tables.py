"""What drafting yields: acceptance, speed, break-even, languages side by side; what passes commit, and where.

Source: paper on cross-family speculative decoding for Polish, Tables 2 to 6 and 8 to 11, whose layout this follows.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import pandas as pd

from spectool.measure.intervals import (
    BreakEven,
    Estimate,
    break_even,
    geometric_mean,
    mean_interval,
    speedup_interval,
)
from spectool.measure.page import NONE, cell
from spectool.measure.report.trials import (
    Frame,
    Trials,
    by_model,
    by_scope,
    per,
    pooled_acceptance,
    pooled_tokens_per_pass,
    table_of,
)
from spectool.measure.sample_size import ENOUGH
from spectool.runtime.draft_length.cost_model import geometric_tokens

NEAR_TIE = 0.125  # between neighbouring bfloat16 numbers from 16 to 32, where the best logits often lie
_SHOWN = 8  # places of a draft
_FIRST = 16  # tokens of a text: the first range of positions; each further one is as long as all before it
_BUCKETS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7)  # lower ends, as in the paper's Table 6
_BUCKET_NAMES = (
    f"below {_BUCKETS[1]:.0%}",
    *(f"{low:.0%} to {high:.0%}" for low, high in pairwise(_BUCKETS[1:])),
    f"{_BUCKETS[-1]:.0%} and more",
)


def speedup(some: Frame) -> Estimate:
    """Return the mean speed-up of trials."""
    return speedup_interval(some.speedup)


def by_kind(here: Frame, spell: Callable[[Frame], str]) -> Frame:
    """Lay out configurations down, kinds of prompts across, all of them last.

    Args:
        here: Trials of a target and a language.
        spell: From the trials of a configuration and a kind to a cell.
    """
    kinds = here.kind.unique() if here.kind.nunique() > 1 else ()

    def row(some: Frame) -> dict[str, str]:
        of_kinds = dict(list(some.groupby("kind")))
        found = {kind: spell(of_kinds[kind]) if kind in of_kinds else NONE for kind in kinds}
        return found | {"all": spell(some)}

    return per(here, "label", row)


def speed(trials: Trials) -> dict[str, Frame]:
    """Tables 3, 4 and 11: speed-up by configuration and kind."""
    return by_scope(trials.drafted, lambda here: by_kind(here, lambda some: cell(speedup(some))))


def rates(trials: Trials) -> dict[str, Frame]:
    """The same in tokens per second, plain decoding first."""
    return by_scope(trials.every, lambda here: by_kind(here, lambda some: cell(some.rate.mean(), ",.1f")))


def acceptance(trials: Trials) -> dict[str, Frame]:
    """Tables 2, 4 and 11: acceptance by configuration and kind."""

    def spell(some: Frame) -> str:
        known = some.acceptance.dropna()
        return cell(mean_interval(known), ".0%") if len(known) else NONE

    def pooled(some: Frame) -> dict[str, str]:
        return {"pooled": cell(pooled_acceptance(some), ".0%")}

    return by_scope(trials.drafted, lambda here: by_kind(here, spell).join(per(here, "label", pooled)))


def draft_length(trials: Trials) -> dict[str, Frame]:
    """Table 4: what a longer draft changes; nothing where only one length was measured."""
    lengths = sorted(trials.drafted.k.dropna().astype(int).unique())

    def row(some: Frame) -> dict[str, str]:
        cells, speedups = {}, some.groupby("k").speedup.agg(geometric_mean)
        for k in lengths:
            of_length = some[some.k == k]
            cells[f"accepted, k = {k}"] = cell(pooled_acceptance(of_length), ".0%")
            cells[f"speed-up, k = {k}"] = cell(speedup(of_length)) if len(of_length) else NONE
        return cells | {"fastest k": f"{speedups.idxmax():.0f}"}

    if len(lengths) < 2:
        return {}
    return by_scope(trials.drafted, lambda here: per(here[here.k.notna()], "name", row, "drafter"))


def buckets(trials: Trials) -> dict[str, Frame]:
    """Tables 6 and 8 to 10: mean speed-up by acceptance, and how many prompts have it."""

    def row(some: Frame) -> dict[str, str]:
        found = some.speedup.groupby(bucket(some.acceptance), observed=False)
        return {name: f"{geometric_mean(seen):.2f} ({len(seen)})" if len(seen) else NONE for name, seen in found}

    return by_scope(trials.drafted, lambda here: per(here, "label", row))


def bucket(alphas: Frame) -> Frame:
    """Return the buckets that acceptance rates fall into, by name; NaN falls into none."""
    return pd.cut(alphas, [*_BUCKETS, float("inf")], right=False, labels=_BUCKET_NAMES)


def break_evens(trials: Trials) -> dict[str, Frame]:
    """Tables 5 and 11: the acceptance from which on drafting pays."""
    return by_scope(trials.drafted, lambda here: by_kind(here, lambda some: str(break_even_of(some) or NONE)))


def break_even_of(some: Frame) -> BreakEven | None:
    """Return the break-even point of some trials."""
    seen = some[some.acceptance.notna()]
    return break_even(seen.acceptance.tolist(), seen.rate.tolist(), seen.plain_rate.tolist())


def languages(trials: Trials) -> Frame | None:
    """Languages side by side, with the configurations that several of them have; None for one language."""
    if trials.drafted.language.nunique() < 2:
        return None
    last = "the fastest of all"
    parts = {}
    for name, here in trials.drafted.sort_values("language", kind="stable").groupby("scope", sort=False):
        fastest = here[here.label == here.groupby("label").speedup.agg(geometric_mean).idxmax()]
        parts[name] = pd.concat([here, fastest.assign(label=last)])
    table = _beside(parts, "label", [*trials.drafted.label.unique(), last])
    return table[table.notna().sum(axis=1) > len(table.columns) // len(parts)]


def by_temperature(trials: Trials) -> dict[str, Frame]:
    """Return acceptance, tokens per pass and speed-up of each configuration by temperature; nothing for one alone."""

    def table(here: Frame) -> Frame:
        parts = {f"{temperature:g}": drawn for temperature, drawn in here.groupby("temperature")}
        return _beside(parts, "same", here.same.unique())

    return by_scope(trials.drafted, table) if trials.drafted.temperature.nunique() > 1 else {}


def _beside(parts: Mapping[str, Frame], column: str, order: Sequence[str]) -> Frame:
    """Lay out the figures of several parts side by side, a row for each value of a column; NaN where one has none."""
    table = pd.concat({name: per(some, column, _figures) for name, some in parts.items()}, axis=1)
    table.columns = [": ".join(names) for names in table.columns]
    return table.reindex(order).rename_axis("configuration")


def _figures(some: Frame) -> dict[str, str]:
    return {
        "accepted": cell(pooled_acceptance(some), ".0%"),
        "tokens per pass": cell(pooled_tokens_per_pass(some)),
        "speed-up": cell(speedup(some)),
    }


def by_place(trials: Trials) -> dict[str, Frame]:
    """Return the share of draft tokens accepted at each place of a draft, of those that the target looked at."""
    longest = min(_SHOWN, trials.cycles.proposed.max())

    def row(some: Frame) -> dict[str, str]:
        seen, found = trials.cycles_by_row[some.row.iloc[0]], {}
        for place in range(1, longest + 1):
            examined = seen[(seen.proposed >= place) & (seen.accepted >= place - 1)]
            share = (examined.accepted >= place).mean() if len(examined) >= ENOUGH else None
            found[f"token {place}"] = cell(share, ".0%")
        return found

    def table(here: Frame) -> Frame:
        found = per(here, "label", row)
        return found.loc[:, (found != NONE).any()]

    return by_model(trials.drafted, table) if longest else {}


def by_position(trials: Trials) -> dict[str, Frame]:
    """Return the share of draft tokens accepted by how many tokens of the text came before the draft."""
    cycles = trials.cycles.assign(range=trials.cycles.position.map(position_range))
    shares = {key: pooled_acceptance(seen) for key, seen in cycles.groupby(["row", "range"])}
    names = {
        place: f"{_FIRST * 2 ** (place - 1) if place else 0} to {_FIRST * 2**place - 1}"
        for place in sorted(cycles.range.unique())
    }

    def row(some: Frame) -> dict[str, str]:
        return {name: cell(shares.get((some.row.iloc[0], place)), ".0%") for place, name in names.items()}

    return by_model(trials.drafted, lambda here: per(here, "label", row))


def position_range(position: int) -> int:
    """Return the number of the range that a position in the text lies in.

    >>> [position_range(position) for position in (0, 15, 16, 31, 32, 63, 64)]
    [0, 0, 1, 1, 2, 2, 3]
    """
    return (position // _FIRST).bit_length()


def by_bits(trials: Trials) -> Frame | None:
    """Return the figures of each draft model beside the bits of both sides' weights; None where all have the same."""
    bits, draft_bits = (trials.run.manifest.statistics.get(name, {}) for name in ("bits", "draft_bits"))
    rows = {}
    for (model, drafter), some in trials.drafted.groupby(["model", "drafter"], sort=False):
        if drafter in draft_bits.get(model, {}):
            sides = {"target's bits": bits.get(model), "draft's bits": draft_bits[model][drafter]}
            spelt = {side: " and ".join(map(str, of)) if of else "not quantised" for side, of in sides.items()}
            rows[f"{model}, {drafter}"] = spelt | _figures(some)
    table = table_of(rows, "target, draft")
    return table if table.iloc[:, :2].nunique().max() > 1 else None


def agreement(cycles: Frame) -> float | None:
    """Return the share of draft tokens accepted among those that the target looked at; None where there was none.

    A rejection ends a cycle, and the tokens after it are not looked at. So this is the ``a`` of the geometric
    expectation. It is more than the acceptance rate, which counts them.
    """
    accepted = cycles.accepted.sum()
    examined = accepted + (cycles.accepted < cycles.proposed).sum()
    return float(accepted / examined) if examined else None


def expected_tokens(cycles: Frame) -> float | None:
    """Return the tokens per pass if every draft token were accepted with the same probability, independently.

    Each cycle counts with the tokens that it proposed, which may be fewer than were asked for.
    """
    probability = agreement(cycles)
    if probability is None:
        return None
    return float(cycles.proposed.map(lambda proposed: geometric_tokens(probability, proposed)).mean())


def tokens_per_pass(trials: Trials) -> dict[str, Frame]:
    """The geometric expectation beside what was measured."""

    def row(some: Frame) -> dict[str, str]:
        seen, k = trials.cycles_by_row[some.row.iloc[0]], some.k.iloc[0]
        probability = agreement(seen)
        asked = None if probability is None or pd.isna(k) else geometric_tokens(probability, int(k))
        return {
            "measured": cell(pooled_tokens_per_pass(some)),
            "geometric": cell(expected_tokens(seen)),
            "geometric at k": cell(asked),
            "drafted": cell(some.proposed.sum() / some.passes.sum()),
            "accepted": cell(pooled_acceptance(some), ".0%"),
            "a": cell(probability, ".0%"),
            "of the output": cell(some.accepted.sum() / some.tokens.sum(), ".0%"),
        }

    return by_model(trials.drafted, lambda here: per(here, "label", row))


def sources(trials: Trials) -> Frame | None:
    """Acceptance by where drafts came from; None where no configuration has several sources."""
    rows = {}
    for name in trials.drafted.row.unique():
        cycles = trials.cycles_by_row[name]
        of_source = dict(list(cycles.groupby("source")))
        if len(of_source.keys() - {""}) > 1:
            for source, some in of_source.items():
                rows[f"{name}: {source or 'no draft'}"] = {
                    "of all cycles": cell(len(some) / len(cycles), ".0%"),
                    "drafted": cell(some.proposed.mean()),
                    "accepted": cell(pooled_acceptance(some), ".0%"),
                    "accepted tokens": cell(some.accepted.mean()),
                }
    return table_of(rows, "configuration: source") if rows else None


def differences(trials: Trials) -> Frame | None:
    """Outputs that are not plain decoding's, and how near a tie the target was there; None where all are the same."""
    rows, outputs = {}, dict(list(trials.generations.groupby("row")))
    for name in trials.drafted.row.unique():
        gaps = outputs[name].gap.dropna()
        if len(gaps):
            rows[name] = {
                "outputs": f"{len(outputs[name]):,}",
                "that differ": str(len(gaps)),
                "near-ties": str((gaps <= NEAR_TIE).sum()),
                "median gap": f"{gaps.median():.2g}",
                "largest gap": f"{gaps.max():.2g}",
            }
    return table_of(rows, "configuration") if rows else None
