"""The page of a run in Markdown: the verdict first, then a table, and what the figures depend on."""

import shlex
from textwrap import indent
from typing import Any

from spectool.measure.bench.results import Result, Run, Verdict, differences, verdict_of
from spectool.measure.intervals import ENOUGH_PROMPTS, FEWEST, LEAST
from spectool.measure.table import table

_TABLE = f"""\
A speed-up is tokens per second against plain decoding of the same prompt: the geometric mean over prompts, and the ends
of its 95% interval for other prompts of this kind on this machine. Fewer than {FEWEST} prompts have none; take
{ENOUGH_PROMPTS} or more. Prompts with an output of fewer than {LEAST} tokens are left out, and those with one that
loops or echoes its prompt, which is easier to guess than real text."""
_ADVICE = {
    True: "use it:",
    False: "decode plainly, with --num-draft-tokens 0, or try a drafter that is cheaper or guesses better.",
    None: "keep the default draft length auto, which stops drafting where it does not pay. More prompts "
    "(spectool bench --count) make intervals narrower.",
}


def page(run: Run) -> str:
    """What a run says."""
    verdict, options = verdict_of(run), run.options
    parts = [f"# {run.path.resolve().name}: does drafting pay?", verdict.sentence]
    if verdict.fastest:
        parts.append(f"What to do next: {_ADVICE[verdict.pays]}")
        parts += [f'    {command_of(run, verdict.fastest)} --prompt "…"'] if verdict.pays else []
    parts += [indent(summary_table(verdict), "    "), _TABLE, "## Is the output the same?", _sameness(differences(run))]
    measured = {
        "prompts": f"{len(run.blocks)} from {options.prompts}, each decoded in all configurations, one after the other "
        "in an order that changes",
        "outputs": f"at most {options.tokens} tokens, temperature {options.temp:g}, seed {options.seed}",
        "model": options.model,
        **run.facts,
    }
    lines = [f"- {name}: {_in_words(value)}" for name, value in measured.items()]
    return "\n\n".join([*parts, "## What was measured", "\n".join(lines)]) + "\n"


def command_of(run: Run, one: Result) -> str:
    """The command that generates with a configuration."""
    given = ["--model", run.options.model, *run.options.drafters[one.drafter].command]
    given += ["--num-draft-tokens", str(one.num_draft_tokens)] if one.num_draft_tokens else []
    given += ["--temp", f"{run.options.temp:g}"] if run.options.temp else []
    return shlex.join(["spectool", "generate", *given])


def summary_table(verdict: Verdict) -> str:
    """A row for each configuration; a speed-up without an interval is left out, as it may mislead."""
    rows = [one.figures() | ({} if one.speedup.low else {"speedup": None}) for one in verdict.results]
    header = [name.replace("_", " ") for name in rows[0]] if rows else []
    return table(header, [list(map(_cell, row.values())) for row in rows])


def _in_words(fact: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in fact.items()) if isinstance(fact, dict) else str(fact)


def _cell(value: Any) -> str:
    return "—" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def _sameness(found: dict[str, Any]) -> str:
    if not found["outputs"]:
        return "Outputs above temperature 0 are drawn, so they are not compared."
    said = f"{found['different']:,} of {found['outputs']:,} outputs ({found['tokens']:,} tokens) leave plain decoding's"
    if found["different"]:
        said += f", the first after {found['first_difference']:,} tokens. The two best logits there are "
        said += f"{found['largest_gap']:.3g} apart at most: a pass over several tokens rounds differently from single "
        said += "steps, so two tokens with almost the same logit may swap. Please report gaps far above 0.125"
    return f"{said}."
