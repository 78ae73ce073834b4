"""What drafting costs: the published model, time, energy and memory.

Source: paper on cross-family speculative decoding for Polish, Tables 7 and 12.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from spectool.measure.report.cells import NONE, decimal, percent, reach, size
from spectool.measure.report.cost_fit import Observation, fit_cost
from spectool.measure.report.page import Section, Table
from spectool.measure.report.tables import break_even_of
from spectool.measure.report.trials import Trial, Trials, chosen


def cost_model(
    trials: Trials, sizes: Mapping[str, int], draft_sizes: Mapping[str, Mapping[str, int]]
) -> Section | None:
    """Table 7: the published model fitted to every drafter and strategy; None where no draft length was fixed."""
    lengths = sorted({way.k for way in trials.ways if way.k})
    rows = []
    for model in trials.models:
        for name in dict.fromkeys(way.name for way in trials.ways if way.model == model and way.k):
            some = [trial for trial in chosen(trials.drafted, model=model) if trial.way.name == name and trial.way.k]
            seen = observations(some)
            found = fit_cost(seen)
            if found is None:
                continue
            draft = draft_sizes.get(model, {}).get(some[0].way.drafter)
            by_size = draft / sizes[model] if draft and sizes.get(model) else None
            measured = [percent(_break_even(some, k)) for k in lengths]
            published = [percent(found.model.break_even(k)) for k in lengths]
            exact = [percent(found.model.exact_break_even(k)) for k in lengths]
            rows.append(
                [
                    trials.named(model, name),
                    f"{reach(found.r, 3)}{' (timed)' if found.timed else ''}",
                    decimal(fmean(one.draft_step for one in seen), 3),
                    decimal(by_size, 3),
                    reach(found.beta, 3),
                    *(cell for cells in zip(published, exact, measured, strict=True) for cell in cells),
                ]
            )
    if not rows:
        return None
    header = [f"k = {k}: {what}" for k in lengths for what in ("r + βk", "exact", "line")]
    caption = (
        "Constants of the cost model with 95% intervals, r as the drafter's own time and as the models' sizes have it, "
        "and the acceptance from which on drafting pays: as published, solved exactly, and by the lines under "
        "“Break-even”, over all prompts."
    )
    text = [
        "The published model says speed-up = (1 + αk) / ((k + 1) r + 1 + βk²): a cycle yields 1 + αk tokens and costs "
        "k + 1 steps of the drafter, a pass of the target, and a part that grows with k². r is a draft step and β that "
        "part, both in steps of plain decoding. Its published break-even r + βk leaves out r / k; the exact one is "
        "(k + 1) r / k + βk.",
        "With several draft lengths r and β are fitted by least squares, prompts taken as independent; with one they "
        "cannot be told apart, so r is the drafter's time (“timed”). A negative constant, or an r far from the timed "
        "one, says that costs here do not follow this form: it takes all passes as equally long, and k tokens as "
        "drafted in each.",
    ]
    return Section("Cost model", text, [Table(caption, ["way", "r", "r timed", "r by size", "β", *header], rows)])


def observations(some: Sequence[Trial]) -> list[Observation]:
    """Return what trials of fixed draft lengths say about the cost of a cycle."""
    return [
        Observation(
            trial.acceptance,
            trial.way.k,
            trial.speedup,
            trial.draft_seconds / (trial.passes * (trial.way.k + 1)) * trial.plain_rate,
        )
        for trial in some
        if trial.way.k and trial.acceptance is not None
    ]


def time_spent(trials: Trials) -> Section:
    """Where the time goes, a cycle on average."""
    tables = []
    for model in trials.models:
        plain = chosen(trials.plain, model=model)
        rows = [["plain", NONE, NONE, NONE, _ms(plain_step(trials, plain)), "1.00", *_reading(plain)]]
        for way in (way for way in trials.ways if way.model == model):
            some = chosen(trials.drafted, way)
            draft, passing, rest = cycle_seconds(some)
            whole = draft + passing + rest
            parts = map(_ms, (draft, passing, rest, whole))
            rows.append([way.label, *parts, decimal(whole / plain_step(trials, some)), *_reading(some)])
        header = ["way", "drafting", "target's pass", "rest", "cycle", "in plain steps"]
        header += ["target reads the prompt", "drafter reads it"]
        caption = (
            "Milliseconds of a cycle (one pass of the target and the drafting for it), mean over all cycles; what it "
            "takes in steps of plain decoding of the same prompts must be less than the tokens it commits. Last, what "
            "reading a prompt takes the target, with and without drafting, and on top of that the drafter, once, "
            f"outside all speeds here.{trials.here(model)}"
        )
        tables.append(Table(caption, header, rows))
    return Section("Where the time goes", (), tables)


def plain_step(trials: Trials, some: Sequence[Trial]) -> float:
    """Return seconds of an average step of plain decoding, of the prompts that ``some`` have."""
    plain = trials.plain_beside(some)
    return sum(trial.seconds for trial in plain) / sum(trial.tokens for trial in plain)


def cycle_seconds(some: Sequence[Trial]) -> tuple[float, float, float]:
    """Return seconds of an average cycle in the drafter, in the target's pass, and in the rest."""
    passes = sum(trial.passes for trial in some)
    draft, passing = sum(t.draft_seconds for t in some) / passes, sum(t.pass_seconds for t in some) / passes
    return draft, passing, sum(t.seconds for t in some) / passes - draft - passing


def energy(trials: Trials, power: Mapping[str, Any]) -> Section:
    """Table 12: joules for a token; and memory."""
    source = power.get("source", "none")
    told = {
        "powermetrics": "Energy was read from the machine by powermetrics while it ran.",
        "rapl": "Energy was read from the processor's counters (RAPL) while it ran.",
        "stated": f"Energy is an estimate: time × {decimal(power.get('watts'), 0)} W as stated, whatever ran.",
    }.get(source, "No energy was measured, and no power was stated.")
    rows = []
    for way in dict.fromkeys(trial.way for trial in (*trials.plain, *trials.drafted)):
        some = chosen((*trials.plain, *trials.drafted), way)
        joules, usual = _joules(some), _joules(trials.plain_beside(some))
        rows.append(
            [
                trials.named(way.model, way.label),
                decimal(joules, 3),
                percent(None if joules is None or usual is None else joules / usual - 1),
                size(max(trial.peak_memory for trial in some) or None),
            ]
        )
    caption = (
        "Joules for a token of output, the change against plain decoding of the same prompts, and the most memory that "
        "MLX held."
    )
    text = [
        told,
        "Memory is the whole program's: every draft model of the target is loaded in every way, in plain decoding too. "
        "It says what measuring needed, not what a way needs by itself.",
    ]
    return Section("Energy and memory", text, [Table(caption, ["way", "J/token", "change", "peak memory"], rows)])


def _break_even(some: Sequence[Trial], k: int) -> float | None:
    found = break_even_of([trial for trial in some if trial.way.k == k])
    return None if found is None else found.alpha


def _joules(some: Sequence[Trial]) -> float | None:
    rates = [trial.joules / trial.tokens for trial in some if trial.joules is not None]
    return fmean(rates) if rates else None


def _reading(some: Sequence[Trial]) -> tuple[str, str]:
    """Spell what reading a prompt takes the target and, where one reads at all, the drafter."""
    outputs = sum(trial.outputs for trial in some)
    target, draft = sum(t.prompt_seconds for t in some), sum(t.draft_prompt_seconds for t in some)
    return _ms(target / outputs), _ms(draft / outputs) if draft else NONE


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g}" if seconds < 1 else f"{1000 * seconds:,.0f}"
