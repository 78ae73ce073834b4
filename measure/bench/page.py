"""The page of a run in Markdown: the verdict first, then one table, and what the figures depend on."""

import re
import shlex
from collections.abc import Iterator, Sequence

from spectool.measure.bench.results import (
    FIGURES,
    Result,
    Verdict,
    describe_differences,
    differences,
    left_out,
    summary_table,
    verdicts,
)
from spectool.measure.bench.run_file import Run
from spectool.measure.intervals import ENOUGH_PROMPTS, FEWEST, LEAST

_MARKED = re.compile(r"([\\`*_\[\]<>|#$&~])")
_TABLE = f"""\
A configuration is a drafter with a draft length k; with k = auto the length is chosen in every cycle, and is 0 where
drafting does not pay. Speed-up is tokens per second against plain decoding of the same prompt, as the geometric mean
over prompts with its 95% interval; above 1 drafting is faster. The time in which the drafter reads the prompt counts;
the target's does not, because it is the same for all. Acceptance is the share of draft tokens that the target accepted.
A pass of the target, with the drafting for it, has to take fewer plain steps than it yields tokens.

Intervals are over prompts: they say what other prompts of these kinds would give on this machine in this state, and
nothing about other machines, models or texts. Fewer than {FEWEST} prompts have no interval; take {ENOUGH_PROMPTS} or
more of each kind.
"""
_SAMENESS = """\
A pass over several tokens adds numbers in another order than single steps do, so two tokens with almost the same logit
may swap: the two best logits are then at most about 0.125 apart. Please report larger gaps, because they are not
rounding. Above temperature 0 outputs are drawn, so they are not compared. Drafting does not change their distribution.
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
    lines += [f"Output that differs from plain decoding's: {describe_differences(differences(run))}.", "", _SAMENESS]
    return "\n".join([*lines, "## What was measured", "", *_measured(run), ""])


def command_of(run: Run, one: Result) -> str:
    """The command that generates with a configuration."""
    options = run.header.options
    drafter = options.drafters[one.drafter]
    given = [part for name in drafter.dictionaries for part in ("--dict", name)] or ["--no-dict"]
    given += [] if drafter.history else ["--no-history"]
    for option, value in {
        "--draft-model": drafter.draft_model,
        "--alignment": drafter.alignment,
        "--verify": drafter.verify,
        "--num-draft-tokens": one.num_draft_tokens and str(one.num_draft_tokens),
        "--temp": f"{one.temperature:g}" if one.temperature else None,
    }.items():
        given += [option, value] if value else []
    return shlex.join(["spectool", "generate", "--model", options.model, *given])


def _next_step(run: Run, verdict: Verdict) -> Iterator[str]:
    """What to do next."""
    if verdict.pays:
        shown = _printable(command_of(run, verdict.fastest))
        yield from ("What to do next: use it.", "", "~~~", f'{shown} --prompt "…"', "~~~", "")
    elif verdict.results:
        yield from (f"What to do next: {_PAYS[verdict.pays]}", "")


def _measured(run: Run) -> Iterator[str]:
    """What the figures depend on."""
    header, options = run.header, run.header.options
    seconds = sum(one.seconds for block in run.blocks for one in block.generations)
    prompts = len({block.prompt for block in run.blocks})
    temperatures = " and ".join(f"{temperature:g}" for temperature in options.temperatures)
    facts = {
        "prompts": f"{prompts} from {', '.join(options.prompts)}, each decoded in all configurations, one after the "
        f"other in an order that changes; {left_out(run)} left out, because of an output of fewer than {LEAST} tokens",
        "outputs": f"at most {options.tokens} tokens, at temperature {temperatures}, seed {options.seed}",
        "weights": ", ".join(f"{name} ({size:,} bytes)" for name, size in header.weight_bytes.items()),
        "machine": ", ".join(f"{name} {value}" for name, value in header.machine.items()),
        "versions": ", ".join(f"{name} {header.identity.get(name)}" for name in ("spectool", "mlx", "mlx_lm")),
        "begun": f"{header.began}; decoding took {seconds / 60:.1f} minutes",
    }
    return (f"- {name}: {_escaped(value)}" for name, value in facts.items())


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """Text without what has a meaning in Markdown."""
    return _MARKED.sub(r"\\\1", _printable(text))


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
