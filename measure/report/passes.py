"""What passes of the target commit: tokens against the geometric expectation, sources, outputs that differ."""

from spectool.measure.page import cell
from spectool.measure.report.trials import Frame, Trials, per, pooled_acceptance, pooled_tokens_per_pass
from spectool.runtime.draft_length.cost_model import geometric_tokens

NEAR_TIE = 0.125  # between neighbouring bfloat16 numbers from 16 to 32, where the best logits often lie


def agreement(cycles: Frame) -> float | None:
    """Return the share of draft tokens accepted among those that the target looked at; None where there was none.

    A rejection ends a cycle and the tokens after it are not looked at, so that this is the ``a`` of the geometric
    expectation and more than the acceptance rate, which counts them.
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
    cycles = dict(list(trials.cycles.groupby("row")))

    def row(some: Frame) -> dict[str, str]:
        seen, k = cycles[some.row.iloc[0]], some.k.iloc[0]
        probability = agreement(seen)
        asked = None if probability is None or k != k else geometric_tokens(probability, int(k))
        return {
            "measured": cell(pooled_tokens_per_pass(some)),
            "geometric": cell(expected_tokens(seen)),
            "geometric at k": cell(asked),
            "drafted": cell(some.proposed.sum() / some.passes.sum()),
            "accepted": cell(pooled_acceptance(some), ".0%"),
            "a": cell(probability, ".0%"),
            "of the output": cell(some.accepted.sum() / some.tokens.sum(), ".0%"),
        }

    return trials.by_model(lambda here: per(here, "label", row))


def sources(trials: Trials) -> Frame | None:
    """Acceptance by where drafts came from; None where no configuration has several sources."""
    cycles = trials.cycles[trials.cycles.row.isin(trials.drafted.row)]
    totals = cycles.groupby("row").agg(cycles=("cycle", "size"), sources=("source", lambda names: len({*names} - {""})))
    cycles = cycles[cycles.row.map(totals.sources) > 1].sort_values("source", kind="stable")
    if cycles.empty:
        return None

    def row(some: Frame) -> dict[str, str]:
        return {
            "of all cycles": cell(len(some) / totals.cycles[some.row.iloc[0]], ".0%"),
            "drafted": cell(some.proposed.mean()),
            "accepted": cell(pooled_acceptance(some), ".0%"),
            "accepted tokens": cell(some.accepted.mean()),
        }

    place = {name: number for number, name in enumerate(trials.drafted.row.unique())}
    cycles = cycles.iloc[cycles.row.map(place).argsort(kind="stable")]
    named = cycles.assign(named=cycles.row + ": " + cycles.source.replace("", "no draft"))
    return per(named, "named", row, "configuration: source")


def differences(trials: Trials) -> Frame | None:
    """Outputs that are not plain decoding's, and how near a tie the target was there; None where all are the same."""
    rows = trials.generations[trials.generations.row.isin(trials.drafted.row)]
    rows = rows.assign(gap=rows.gap.where(rows.first_difference.notna()))
    order = [row for row in trials.drafted.row.unique() if rows.gap[rows.row == row].notna().any()]

    def row(some: Frame) -> dict[str, str]:
        return {
            "outputs": f"{len(some):,}",
            "that differ": str(some.gap.count()),
            "near-ties": str((some.gap <= NEAR_TIE).sum()),
            "median gap": f"{some.gap.median():.2g}",
            "largest gap": f"{some.gap.max():.2g}",
        }

    return per(rows, "row", row).loc[order] if order else None
