"""What drafting yields: acceptance, speed, break-even, languages side by side.

Source: paper on cross-family speculative decoding for Polish, Tables 2 to 6 and 8 to 11, whose layout this follows.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from spectool.measure.intervals import BreakEven, break_even, mean_interval
from spectool.measure.report.cells import NONE, decimal, percent, percent_reach, reach, threshold
from spectool.measure.report.page import Section, Table
from spectool.measure.report.trials import Trial, Trials, Way, chosen, pooled_acceptance, pooled_tokens_per_pass

ALL = "all"
BUCKETS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7)  # lower ends, as in the paper's Table 6


def acceptance(trials: Trials) -> Section:
    """Tables 2, 4 and 11: acceptance by drafter, strategy and kind."""

    def cell(some: Sequence[Trial]) -> str:
        rates = [trial.acceptance for trial in some if trial.acceptance is not None]
        return percent_reach(mean_interval(rates)) if rates else NONE

    caption = (
        "Share of draft tokens that the target accepted, mean over prompts with its 95% interval; "
        "“pooled” counts all draft tokens together, so that long drafts weigh more."
    )
    pooled = {"pooled": lambda some: percent(pooled_acceptance(some))}
    text = [
        "A draft token is accepted if the target would have written it too. What it costs to draft is not in here: "
        "a drafter with more accepted tokens can still be the slower one."
    ]
    return Section("Acceptance", text, [*_by_kind(trials, caption, cell, pooled)])


def speed(trials: Trials) -> Section:
    """Tables 3, 4 and 11: speed-up and tokens per second by drafter, strategy and kind."""
    parts = [
        *_by_kind(
            trials,
            "Speed-up: tokens per second against plain decoding of the same prompt, which ran beside; mean over "
            "prompts with its 95% interval. Above 1 drafting is faster.",
            lambda some: reach(mean_interval(_speedups(some))),
        ),
        *_by_kind(
            trials,
            "Tokens per second, mean over prompts; the time of reading the prompt is left out.",
            lambda some: decimal(mean_interval([trial.rate for trial in some]).value, 1),
            plain=True,
        ),
    ]
    return Section("Speed", (), parts)


def draft_length(trials: Trials) -> Section | None:
    """Table 4: what a longer draft changes; None where only one length was measured."""
    lengths = sorted({way.k for way in trials.ways if way.k is not None})
    if len(lengths) < 2:
        return None
    parts = []
    for model, language in trials.scopes:
        rows = []
        for name in dict.fromkeys(way.name for way in trials.ways if way.model == model):
            cells, means = [], {}
            for k in lengths:
                some = [t for t in chosen(trials.drafted, None, model, language) if (t.way.name, t.way.k) == (name, k)]
                cells += [percent(pooled_acceptance(some)), NONE]
                if some:
                    found = mean_interval(_speedups(some))
                    means[k], cells[-1] = found.value, reach(found)
            if means:
                rows.append([name, *cells, str(max(means, key=lambda k: means[k]))])
        header = [cell for k in lengths for cell in (f"accepted, k = {k}", f"speed-up, k = {k}")]
        caption = (
            "Draft tokens accepted (of all together) and speed-up by draft length k; a longer draft may "
            f"commit more in a pass and always costs more.{trials.here(model, language)}"
        )
        parts.append(Table(caption, ["way", *header, "fastest k"], rows))
    return Section("Draft length", (), parts)


def buckets(trials: Trials) -> Section:
    """Tables 6 and 8 to 10: speed-up by acceptance."""
    names = [
        f"below {BUCKETS[1]:.0%}",
        *(f"{a:.0%} to {b:.0%}" for a, b in pairwise(BUCKETS[1:])),
    ]
    header = ["way", *names, f"{BUCKETS[-1]:.0%} and more"]
    parts = []
    for model, language in trials.scopes:
        rows = []
        for way in _ways(trials, model):
            cells: list[list[float]] = [[] for _ in BUCKETS]
            for trial in chosen(trials.drafted, way, language=language):
                if trial.acceptance is not None:
                    cells[bucket(trial.acceptance)].append(trial.speedup)
            means = [f"{mean_interval(cell).value:.2f} ({len(cell)})" if cell else NONE for cell in cells]
            rows.append([way.label, *means])
        caption = (
            "Mean speed-up of the prompts whose acceptance lies in a range, in brackets how many they are: read along "
            f"a row to see from which acceptance on a way is above 1.{trials.here(model, language)}"
        )
        parts.append(Table(caption, header, rows))
    return Section("Speed-up by acceptance", (), parts)


def bucket(alpha: float) -> int:
    """Return the number of the bucket that an acceptance rate falls into.

    >>> [bucket(alpha) for alpha in (0.0, 0.299, 0.3, 0.69, 0.7, 1.0)]
    [0, 0, 1, 4, 5, 5]
    """
    return sum(alpha >= low for low in BUCKETS) - 1


def break_evens(trials: Trials) -> Section:
    """Tables 5 and 11: the acceptance from which on drafting pays."""

    def cell(some: Sequence[Trial]) -> str:
        return threshold(break_even_of(some))

    caption = (
        "Acceptance at which a way is as fast as plain decoding, with its 95% interval: from the least-squares line "
        "through every prompt's tokens per second over its acceptance; “unclear” where the interval is wider than "
        "± 100%, “—” where fewer than 3 prompts differ in acceptance or the line does not rise."
    )
    text = [
        "Compare with the acceptance above: a way pays where its acceptance lies over its break-even. A value above "
        "100% cannot be reached; one of 0 or less means that the line never falls below plain decoding. R² is the "
        "share of the variance that the line explains: near 0 the break-even says little."
    ]
    return Section("Break-even", text, [*_by_kind(trials, caption, cell)])


def break_even_of(some: Sequence[Trial]) -> BreakEven | None:
    """Return the break-even point of some trials."""
    seen = [(trial.acceptance, trial.rate, trial.plain_rate) for trial in some if trial.acceptance is not None]
    return break_even(*zip(*seen, strict=True)) if seen else None


def languages(trials: Trials) -> Section | None:
    """Languages side by side, in the ways that several of them have; None for one language."""
    if len({language for _, language in trials.scopes}) < 2:
        return None
    scopes = sorted(trials.scopes, key=lambda scope: scope[1])
    of_scope = [_by_label(chosen(trials.drafted, None, model, language)) for model, language in scopes]
    shared = [way for way in dict.fromkeys(way.label for way in trials.ways) if sum(way in s for s in of_scope) > 1]
    rows = []
    for label in shared:
        rows.append([label, *(cell for found in of_scope for cell in _side(found.get(label, ())))])
    fastest = [max(found.values(), key=lambda some: mean_interval(_speedups(some)).value) for found in of_scope]
    rows.append(["the fastest of all ways", *(cell for some in fastest for cell in _side(some))])
    names = [trials.scope_name(*scope) for scope in scopes]
    header = [f"{name}: {what}" for name in names for what in ("accepted", "tokens per pass", "speed-up")]
    caption = (
        "The same ways in every language: draft tokens accepted, tokens committed in a pass of the target, and "
        "speed-up over plain decoding in that language; last, the way that is fastest there."
    )
    return Section("Languages side by side", (), [Table(caption, ["way", *header], rows)])


def _side(some: Sequence[Trial]) -> tuple[str, str, str]:
    if not some:
        return NONE, NONE, NONE
    return (
        percent(pooled_acceptance(some)),
        decimal(pooled_tokens_per_pass(some)),
        reach(mean_interval(_speedups(some))),
    )


def _by_label(some: Sequence[Trial]) -> dict[str, list[Trial]]:
    found: dict[str, list[Trial]] = {}
    for trial in some:
        found.setdefault(trial.way.label, []).append(trial)
    return found


def _speedups(some: Sequence[Trial]) -> list[float]:
    return [trial.speedup for trial in some]


def _by_kind(
    trials: Trials,
    caption: str,
    cell: Callable[[Sequence[Trial]], str],
    more: dict[str, Callable[[Sequence[Trial]], str]] | None = None,
    plain: bool = False,
) -> list[Table]:
    """One table for each model and language: ways down, kinds of prompts across, all of them last."""
    tables = []
    for model, language in trials.scopes:
        here = [*chosen(trials.plain, None, model, language)] if plain else []
        here += chosen(trials.drafted, None, model, language)
        kinds = list(dict.fromkeys(trial.kind for trial in here))
        columns = more or {}
        rows = []
        for way in dict.fromkeys(trial.way for trial in here):
            of_way = chosen(here, way)
            by_kind = [chosen(of_way, kind=kind) for kind in kinds] if len(kinds) > 1 else []
            cells = [cell(some) if some else NONE for some in (*by_kind, of_way)]
            rows.append([way.label, *cells, *(column(of_way) for column in columns.values())])
        header = ["way", *(kinds if len(kinds) > 1 else []), ALL, *columns]
        tables.append(Table(caption + trials.here(model, language), header, rows))
    return tables


def _ways(trials: Trials, model: str) -> list[Way]:
    return [way for way in trials.ways if way.model == model]
