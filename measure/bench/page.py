"""The page of a run in Markdown: the verdict first, then a table, and what the figures depend on."""

import shlex
from textwrap import indent
from typing import Any

from spectool.measure.bench.results import Result, Run, Verdict, differences, verdict_of
from spectool.measure.intervals import ENOUGH_PROMPTS, FEWEST, LEAST
from spectool.measure.table import table

_TABLE = f"""\
A speed-up is tokens per second against plain decoding of the same prompt: the geometric mean over prompts, and its 95%
interval for other prompts of this kind on this machine, wider where several configurations are compared. Fewer than
{FEWEST} prompts have none; take {ENOUGH_PROMPTS} or more. Prompts with an output that loops or has fewer than {LEAST}
tokens are left out."""
_ADVICE = {
    True: "use it:",
    False: "decode plainly, with --num-draft-tokens 0, or try a drafter that is cheaper or guesses better.",
    None: "keep the default draft length auto, which stops where drafting does not pay, or measure more prompts.",
}


def page(run: Run) -> str:
    """What a run says."""
    verdict, options = verdict_of(run), run.options
    parts = [f"# {run.path.resolve().name}: does drafting pay?", verdict.sentence]
    if verdict.fastest:
        parts.append(f"What to do next: {_ADVICE[verdict.pays]}")
        parts += [f'    {command_of(run, verdict.fastest)} --prompt "…"'] if verdict.pays else []
    parts += [indent(summary_table(verdict), "    "), _TABLE, "## Is the output the same?", _sameness(run)]
    measured = {
        "prompts": f"{len(run.blocks)} from {options.prompts}, each decoded in all configurations in random order",
        "outputs": f"at most {options.tokens} tokens, temperature {options.temp:g}, seed {options.seed}",
        "model": options.model,
        **run.facts,
    }
    lines = [f"- {name}: {value}" for name, value in measured.items()]
    return "\n\n".join([*parts, "## What was measured", "\n".join(lines)]) + "\n"


def command_of(run: Run, one: Result) -> str:
    """The command that generates with a configuration."""
    given = ["--model", run.options.model, *run.options.drafters[one.drafter].command]
    given += [] if one.draft_length == "auto" else ["--num-draft-tokens", str(one.draft_length)]
    given += ["--temp", f"{run.options.temp:g}"] if run.options.temp else []
    return shlex.join(["spectool", "generate", *given])


def summary_table(verdict: Verdict) -> str:
    """A row for each configuration; a speed-up without an interval, or without drafts, may mislead and is left out."""
    unsure = dict.fromkeys(("speedup", "low", "high"))
    rows = [one._asdict() | (unsure if None in (one.low, one.acceptance) else {}) for one in verdict.results]
    return table([name.replace("_", " ") for name in Result._fields], [list(map(_cell, row.values())) for row in rows])


def _cell(value: Any) -> str:
    return "—" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def _sameness(run: Run) -> str:
    found = differences(run)
    if not found["outputs"]:
        return "Outputs above temperature 0 are drawn, so they are not compared."
    said = f"{found['different']:,} of {found['outputs']:,} outputs leave plain decoding's."
    if not found["different"]:
        return said
    return (
        f"{said} The two best logits there are {found['largest_gap']:.3g} apart at most: a pass over several tokens "
        "rounds differently from single steps, so near-ties may swap. Please report gaps far above 0.125."
    )
