"""What passes of the target commit: tokens against the geometric expectation, sources, outputs that differ."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from spectool.measure.report.cells import decimal, percent
from spectool.measure.report.cycles import Cycles, agreement, expected_tokens
from spectool.measure.report.page import Section, Table
from spectool.measure.report.trials import Trials, Way, chosen, pooled_acceptance, pooled_tokens_per_pass
from spectool.runtime.draft_length.cost_model import geometric_tokens

NEAR_TIE = 0.125  # between neighbouring bfloat16 numbers from 16 to 32, where the best logits often lie
_THE_SAME = "Is the output the same?"


def tokens_per_pass(trials: Trials, cycles: Mapping[Way, Sequence[Cycles]]) -> Section:
    """The geometric expectation beside what was measured."""
    tables = []
    for model in trials.models:
        rows = []
        for way in (way for way in trials.ways if way.model == model):
            some, seen = chosen(trials.drafted, way), cycles.get(way, ())
            probability = agreement(seen)
            tokens, accepted = sum(trial.tokens for trial in some), sum(trial.accepted for trial in some)
            proposed = sum(trial.proposed for trial in some) / sum(trial.passes for trial in some)
            asked = None if probability is None or not way.k else geometric_tokens(probability, way.k)
            rows.append(
                [
                    way.label,
                    decimal(pooled_tokens_per_pass(some)),
                    decimal(expected_tokens(seen)),
                    decimal(asked),
                    decimal(proposed),
                    percent(pooled_acceptance(some)),
                    percent(probability),
                    percent(accepted / tokens),
                ]
            )
        header = ["way", "measured", "geometric", "geometric at k", "drafted", "accepted", "a", "of the output"]
        caption = (
            "Tokens that a pass of the target commits: measured, and (1 − a^(k+1)) / (1 − a) for as many draft tokens "
            "as were proposed, and for k; then draft tokens in a pass, and three shares of accepted ones: of the "
            f"proposed, of those that the target looked at (a), and of all tokens of the output.{trials.here(model)}"
        )
        tables.append(Table(caption, header, rows))
    text = [
        "More tokens per pass is what drafting is for; on a machine where a pass costs the same with and without "
        "draft tokens and drafting is free, it is the speed-up. The geometric expectation takes draft tokens as "
        "accepted independently, each with probability a. Measured below expected means that right guesses come in "
        "runs, as where easy and hard passages alternate; above, that the later tokens of a draft are worse than the "
        "first."
    ]
    return Section("Tokens per pass", text, tables)


def sources(trials: Trials, cycles: Mapping[Way, Sequence[Cycles]]) -> Section | None:
    """Acceptance by where drafts came from; None where no way has several sources."""
    rows = []
    for way in trials.ways:
        by_source: dict[str, list[Cycles]] = defaultdict(list)
        for some in cycles.get(way, ()):
            by_source[some.source].append(some)
        if len(set(by_source) - {""}) < 2:
            continue
        total = sum(some.number for some in cycles[way])
        for source, group in by_source.items():
            number = sum(some.number for some in group)
            proposed = sum(some.number * some.proposed for some in group)
            accepted = sum(some.accepted for some in group)
            rows.append(
                [
                    trials.named(way.model, f"{way.label}: {source or 'no draft'}"),
                    percent(number / total),
                    decimal(proposed / number),
                    percent(accepted / proposed if proposed else None),
                    decimal(accepted / number),
                ]
            )
    header = ["way: source", "of all cycles", "drafted", "accepted", "accepted tokens"]
    caption = (
        "Cycles by the source of their draft: how often it was used, draft tokens in a cycle, the share of them that "
        "was accepted, and accepted tokens in a cycle."
    )
    return Section("Sources of drafts", (), [Table(caption, header, rows)]) if rows else None


def differences(trials: Trials) -> Section:
    """Outputs that are not plain decoding's, and how near a tie the target was there."""
    if not trials.compared:
        text = [
            "Outputs were drawn at a temperature and not compared: each way draws its own. Drafting must not change "
            "their distribution, which single outputs cannot show. At temperature 0 a run compares every token."
        ]
        return Section(_THE_SAME, text)
    rows = []
    for way in trials.ways:
        some = chosen(trials.drafted, way)
        gaps = [gap for trial in some for gap in trial.gaps]
        if gaps:
            rows.append(
                [
                    trials.named(way.model, way.label),
                    str(sum(trial.outputs for trial in some)),
                    str(len(gaps)),
                    str(sum(gap <= NEAR_TIE for gap in gaps)),
                    f"{median(gaps):.2g}",
                    f"{max(gaps):.2g}",
                ]
            )
    total = sum(trial.outputs for trial in trials.drafted)
    text = [
        "Drafting must not change a single token. A pass over several tokens adds numbers in another order than single "
        "steps do, so that two tokens with almost the same probability may change places: a near-tie, in which "
        f"neither is wrong. Here a near-tie is a gap of at most {NEAR_TIE} between the two best log-probabilities, the "
        "step between bfloat16 numbers of the size of logits. A larger gap is worth a look.",
        f"{total:,} drafted outputs were compared"
        + (", and every one of them is plain decoding's, token for token." if not rows else "."),
    ]
    header = ["way", "outputs", "that differ", "near-ties", "median gap", "largest gap"]
    caption = "Outputs that leave plain decoding's, and the gap between the target's two best tokens where they do."
    return Section(_THE_SAME, text, [Table(caption, header, rows)] if rows else ())
