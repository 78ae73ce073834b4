"""The command ``doctor``."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from textwrap import fill
from typing import Any

import click

from spectool.artifacts.atomic import require_writable
from spectool.commands.shared.console import say, say_next, show
from spectool.commands.shared.model_options import draft_model_option, follow_rank_0, model_option, pipeline_option
from spectool.commands.shared.options import Finite, command, option
from spectool.measure.table import table
from spectool.runtime.policy.pass_costs import PassCosts, costs_path, save_costs


@command("doctor")
@model_option
@draft_model_option(help="Draft model to measure as well: directory or hub id.")
@option("--seconds", type=Finite(0.1, 600), help="Time for each model; by default 10, or that of 80 passes if longer.")
@option("--exact", is_flag=True, help="From now on, draft only as far as the bits stay those of plain decoding.")
@pipeline_option
@option("--share", is_flag=True, help="Print a line to send us, so that others know what to expect of such a machine.")
def doctor(
    model: str, draft_model: str | None, seconds: float | None, exact: bool, pipeline: bool, share: bool, as_json: bool
) -> None:
    """Measure what drafts cost on this machine, and save it for later commands.

    Measures passes over 1 to 32 tokens, works out how often a draft has to be right to pay, and checks whether such a
    pass gives the same bits as passes over single tokens. `generate`, `chat`, `serve` and `bench` decide by these
    figures how far to draft. Close other programs first.

    \b
    Examples:
        spectool doctor --model ./Bielik-11B
        spectool doctor --model ./Bielik-11B --draft-model ./Qwen2.5-1.5B
    """
    from spectool.measure.machines import cheaper_here, row_to_share
    from spectool.runtime.loading import load_model, local_model

    follow_rank_0(model, pipeline)
    names = {"target": model} | ({"draft": draft_model} if draft_model else {})
    require_writable(costs_path("new"))
    for name in names.values():
        local_model(name)  # a mistake is said before a model is fetched
    for name in names.values():
        load_model(name, lazy=True)  # before any is measured, and without the other ranks
    costs: dict[str, PassCosts] = {}
    for role, name in names.items():
        loaded, costs[role] = measured(name, seconds, exact, pipeline if role == "target" else None)
        if share:
            click.echo(row_to_share(loaded, costs[role]).model_dump_json(exclude_defaults=True))
        if role == "target":
            advice = cheaper_here(loaded, costs[role])
        del loaded
    if share:
        if not all(each.final for each in costs.values()):
            say("Do not send this: other programs kept the machine busy. Close them, and run the same command again.")
        return
    draft_pass = costs["draft"].curve[1] if draft_model else 0.0
    lengths = _lengths(costs["target"], draft_pass)
    if as_json:
        more = {"lengths": lengths, "other_weights": advice}
        show({role: asdict(each) for role, each in costs.items()} | more, as_json=True)
        return
    click.echo(f"\n{costs['target'].model} on {costs['target'].machine}\n\n{_table(costs['target'], lengths)}\n")
    for note in [*_notes(costs["target"], draft_pass), *advice]:
        click.echo(fill(note, 100))
    if draft_model:
        say_next(["setup", model, "--draft-model", draft_model], "--language …")
    else:
        say_next(["generate", "--model", model])


def measured(
    name: str, seconds: float | None, exact: bool = False, pipeline: bool | None = None
) -> tuple[Any, PassCosts]:
    """A model, and what its passes cost, measured now and saved."""
    from spectool.measure.doctor import measure_costs
    from spectool.runtime.loading import load_model
    from spectool.runtime.policy.costs import known_costs, model_key

    say(f"loading {name}")
    model, tokenizer = load_model(name, pipeline=pipeline)
    say(f"{name}: measuring for {f'{seconds:g} seconds' if seconds else '10 seconds, or longer if it is slow'}")
    costs = replace(measure_costs(model, tokenizer, name, seconds), exact=exact)
    if not costs.final and (before := known_costs(model)) is not None:
        costs = costs.with_another(before)
    save_costs(model_key(model), costs)
    return model, costs


def _lengths(costs: PassCosts, draft_pass: float) -> list[dict[str, Any]]:
    """What drafts of each length cost, the length 0 first."""
    from spectool.measure.doctor import break_even

    curve = costs.curve
    return [
        {
            "draft_tokens": rows - 1,
            "plain_passes": round(curve[rows] / curve[1], 3),
            "break_even": None if rows == 1 else break_even(curve, rows - 1, draft_pass),
            "same_bits": rows in costs.same_bits,
        }
        for rows in sorted(curve)
    ]


def _table(costs: PassCosts, lengths: list[dict[str, Any]]) -> str:
    depths, rows = sorted(costs.seconds), list[list[str]]()
    for length in lengths:
        drafts, needed = length["draft_tokens"], length["break_even"]
        seconds = [costs.seconds[depth].get(drafts + 1) for depth in depths]
        right = f"{needed:.0%}" if needed is not None else "never pays" if drafts else ""
        times = [f"{1e3 * each:.1f}" if each else "" for each in seconds]
        rows.append([str(drafts), *times, right, "same" if length["same_bits"] else ""])
    return table(["draft tokens", *(f"ms at {depth:,}" for depth in depths), "must be right", "bits"], rows)


def _notes(costs: PassCosts, draft_pass: float) -> Iterator[str]:
    """What the table means, and what it does not say."""
    if draft_pass:
        yield (
            f"A token of the draft model takes {1e3 * draft_pass:.1f} ms, {draft_pass / costs.curve[1]:.2f} of a plain "
            "pass; the shares that must be right include it."
        )
    if not costs.final:
        yield (
            "This is not final: other programs kept the machine busy, so some times are too long. Passes are measured "
            "again when the model next drafts; or close other programs, and run `doctor` again."
        )
    if not costs.curve.keys() <= set(costs.same_bits):
        yield (
            "Where “same” is missing, there was no time to compare, or a pass over that many tokens rounds differently "
            "from passes over one, so two tokens with nearly equal logits may change places."
        )
    if costs.exact:
        yield (
            f"--exact: from now on drafts are {costs.longest_exact} tokens long at most, so that the bits stay the "
            "same. Without it, run `doctor` again."
        )
