"""The page of a run in Markdown: the verdict first, then one table, and what the figures depend on."""

import re
import shlex
from collections.abc import Iterator, Sequence

from spectool.measure.bench.results import (
    FIGURES,
    Result,
    Verdict,
    differences,
    summary_table,
    verdicts,
)
from spectool.measure.bench.run_file import Run
from spectool.measure.intervals import ENOUGH_PROMPTS, FEWEST, LEAST

_MARKED = re.compile(r"([\\`*_\[\]<>|#$&~])")
_TABLE = f"""\
Speed-up is tokens per second against plain decoding of the same prompt: the geometric mean over prompts, and where it
would lie for other prompts of these kinds on this machine. Fewer than {FEWEST} prompts have no interval; take
{ENOUGH_PROMPTS} or more of each kind. Text that loops or echoes its prompt is easy to guess, so its speeds say nothing
about real text. k is the draft length; auto chooses it in every pass, and 0 where drafting does not pay.
"""
_SAMENESS = """\
A pass over several tokens rounds differently from single steps, so two tokens with almost the same logit may swap: the
two best logits are then at most about 0.125 apart. Please report larger gaps, because they are not rounding.
"""
_PAYS = {
    False: "decode plainly here, with --num-draft-tokens 0, or try a drafter that is cheaper or guesses better.",
    None: "keep the default draft length auto, which stops drafting where it does not pay. More prompts "
    "(spectool bench --count) make intervals narrower.",
}


def page(run: Run) -> str:
    """What a run says."""
    found = verdicts(run)
    header, rows = summary_table(found)
    lines = [f"# {_escaped(run.path.resolve().name)}: does drafting pay?", ""]
    for verdict in found:
        lines += [f"**{_escaped(verdict.sentence)}**", "", *_next_step(run, verdict)]
    if rows:
        rule = ["---"] * (len(header) - len(FIGURES)) + ["---:"] * len(FIGURES)
        lines += ["## All configurations", "", _row(header), f"| {' | '.join(rule)} |", *map(_row, rows), "", _TABLE]
    lines += ["## Is the output the same?", ""]
    lines += [f"Output that differs from plain decoding's: {differences(run)['differences']}.", "", _SAMENESS]
    return "\n".join([*lines, "## What was measured", "", *_measured(run), ""])


def command_of(run: Run, one: Result) -> str:
    """The command that generates with a configuration."""
    given = [*run.options.drafters[one.drafter].command]
    given += ["--num-draft-tokens", one.length] if one.num_draft_tokens else []
    given += ["--temp", f"{one.temperature:g}"] if one.temperature else []
    return shlex.join(["spectool", "generate", "--model", run.options.model, *given])


def _next_step(run: Run, verdict: Verdict) -> list[str]:
    if verdict.pays:
        return ["What to do next: use it.", "", f'    {command_of(run, verdict.fastest)} --prompt "…"', ""]
    return [f"What to do next: {_PAYS[verdict.pays]}", ""] if verdict.enough else []


def _measured(run: Run) -> Iterator[str]:
    """What the figures depend on."""
    options, short = run.options, {block.prompt for block in run.blocks if not block.long_enough}
    temperatures = " and ".join(f"{temperature:g}" for temperature in options.temperatures)
    facts = {
        "prompts": f"{len({block.prompt for block in run.blocks})} from {', '.join(options.prompts)}, each decoded in "
        f"all configurations, one after the other in an order that changes; {len(short)} left out, because of an "
        f"output of fewer than {LEAST} tokens",
        "outputs": f"at most {options.tokens} tokens, at temperature {temperatures}, seed {options.seed}",
        "model": options.model,
        "weights": ", ".join(f"{name} {size:,} bytes" for name, size in run.facts["weights"].items()),
        "machine": run.facts["machine"],
        "versions": ", ".join(f"{name} {number}" for name, number in run.facts["versions"].items()),
        "begun": run.facts["began"],
    }
    return (f"- {name}: {_escaped(value)}" for name, value in facts.items())


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """Text without what has a meaning in Markdown."""
    return _MARKED.sub(r"\\\1", text)
