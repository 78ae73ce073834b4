"""A run, and the page of what it says: whether drafting pays, how sure that is, and whether the texts are the same.

A run is a folder with ``run.jsonl``, which only ``bench`` writes, and the page ``report.md``. The first line of
``run.jsonl`` says what was measured and where. Every further line is a `Block`, written as soon as it is measured.

A speed-up is taken inside a block, against plain decoding of the same prompt. Means and intervals are over prompts.
Blocks with an output that loops do not count: drafts are nearly always right about text that repeats itself.
docs/measuring.md says which outputs of real models the limit comes from.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple

from spectool.artifacts.atomic import naming
from spectool.measure.intervals import ENOUGH_PROMPTS, FEWEST, LEAST, LEVEL, speedup_interval
from spectool.measure.table import table

RUN_FILE, PAGE = "run.jsonl", "report.md"
PLAIN = "plain"  # the drafter of plain decoding
UNFIT, TOO_SHORT = "This model is unfit for measuring", "This run is too short to tell whether drafting pays"
_SAYS = {True: "Drafting pays", False: "Drafting does not pay", None: "It is not clear yet whether drafting pays"}
_LOOPING = 0.45  # share of runs of four tokens that occur before: tables and code have up to 0.4, loops 0.6 and more
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


@dataclass(frozen=True)
class DrafterSpec:
    """What drafts."""

    command: tuple[str, ...]  # the options of `spectool generate` for it
    sources: Mapping[str, Any]  # arguments of `load_drafter`


@dataclass(frozen=True)
class Options:
    """What a run measures."""

    model: str  # directory or hub id of the target
    drafters: Mapping[str, DrafterSpec]  # by the name that tables have
    prompts: str  # their source, as `load_prompts` takes it
    count: int | None = None  # of prompts
    window: int = 0  # maximum tokens of a prompt from a corpus; 0 for whole documents
    num_draft_tokens: tuple[int | None, ...] = (None,)  # None for automatic
    tokens: int = 128  # maximum number after each prompt
    temp: float = 0.0
    seed: int = 0  # of the order in a block, and of sampling
    ignore_eos: bool = False  # go on after the model ends its text
    pipeline: bool = False  # under mlx.launch, each process has some layers, and not a part of every layer

    @property
    def configurations(self) -> list[tuple[str, int | None]]:
        """Drafter and draft length of every generation of a block, plain decoding first."""
        return [(PLAIN, 0), *product(self.drafters, self.num_draft_tokens)]


@dataclass(frozen=True)
class Generation:
    """What a configuration wrote after a prompt, and how long it took."""

    drafter: str  # as the options name it, or `PLAIN`
    num_draft_tokens: int | None  # 0 for plain decoding; None if chosen while decoding
    output: tuple[int, ...]
    seconds: float  # from the pass over the last token of the prompt; the drafter reads the prompt meanwhile
    draft_seconds: float = 0.0  # of those, in the drafter
    proposed: tuple[int, ...] = ()  # draft tokens of each cycle
    accepted: tuple[int, ...] = ()  # of those
    gap: float | None = None  # where the output leaves plain decoding's: distance of the two best logits

    @property
    def tokens(self) -> int:
        """Number of tokens in the output."""
        return len(self.output)


@dataclass(frozen=True)
class Block:
    """One prompt at one temperature, decoded in every configuration."""

    prompt: str  # its name
    source: str  # language of a built-in prompt, or corpus
    kind: str  # of text
    temperature: float
    prompt_tokens: int
    generations: tuple[Generation, ...]  # in the order in which they ran

    @property
    def loops(self) -> bool:
        """Whether some output loops."""
        return any(loops(one.output) for one in self.generations)

    @property
    def counts(self) -> bool:
        """Whether every output is long enough to be timed, and none loops."""
        return min(one.tokens for one in self.generations) >= LEAST and not self.loops

    @property
    def by_configuration(self) -> dict[tuple[str, int | None], Generation]:
        """The generations by drafter and draft length."""
        return {(one.drafter, one.num_draft_tokens): one for one in self.generations}


def loops(output: Sequence[int]) -> bool:
    """Whether an output only repeats itself. Good text may begin to, so the second half counts by itself as well."""
    parts = output, output[len(output) // 2 :]
    runs = [list(zip(part, part[1:], part[2:], part[3:], strict=False)) for part in parts]
    return any(1 - len(set(each)) / len(each) >= _LOOPING for each in runs if each)


@dataclass
class Run:
    """What is measured of a run."""

    path: Path
    options: Options
    facts: dict[str, str]  # "began", "machine" and "versions"
    blocks: list[Block] = field(default_factory=list)

    def append(self, block: Block) -> None:
        """Add a block, and write it."""
        begin = [] if self.blocks else [{"options": asdict(self.options), **self.facts}]
        self.blocks.append(block)
        self.path.mkdir(parents=True, exist_ok=True)
        with naming(file := self.path / RUN_FILE), file.open("a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(line, default=str) + "\n" for line in [*begin, asdict(block)])


class Result(NamedTuple):
    """What a configuration did on the prompts that count, and how much faster than plain decoding it was."""

    drafter: str
    draft_length: int | str  # "auto" if chosen while decoding
    prompts: int
    speedup: float  # geometric mean over prompts
    low: float | None  # ends of its interval; None for too few prompts
    high: float | None
    acceptance: float | None  # None if nothing was proposed
    tokens_per_pass: float


def _result(drafter: str, k: int | None, blocks: Sequence[Block], level: float) -> Result:
    ran, plain = ([block.by_configuration[each] for block in blocks] for each in ((drafter, k), (PLAIN, 0)))
    speeds, plainly = ([one.tokens / one.seconds for one in each] for each in (ran, plain))
    found = speedup_interval([speed / base for speed, base in zip(speeds, plainly, strict=True)], level)
    proposed, accepted = sum(sum(one.proposed) for one in ran), sum(sum(one.accepted) for one in ran)
    acceptance = accepted / proposed if proposed else None
    a_pass = sum(one.tokens for one in ran) / sum(len(one.proposed) or one.tokens for one in ran)
    return Result(drafter, k or "auto", found.n, found.value, found.low, found.high, acceptance, a_pass)


@dataclass(frozen=True)
class Verdict:
    """What a run says of drafting."""

    results: Sequence[Result]  # of every configuration; none if no prompt counts
    sentence: str
    pays: bool | None = None  # None if that is not clear
    fastest: Result | None = None  # None if there is too little real text

    @property
    def facts(self) -> dict[str, Any]:
        """It as JSON."""
        return {"verdict": self.sentence, "pays": self.pays, "configurations": [one._asdict() for one in self.results]}


def verdict_of(run: Run) -> Verdict:
    """The verdict, on the blocks that count.

    With several configurations, their intervals are so wide that all of them hold together (Bonferroni), because the
    luckiest of many looks faster than it is.
    """
    counting, looping = [each for each in run.blocks if each.counts], sum(each.loops for each in run.blocks)
    drafting = run.options.configurations[1:]
    results = [_result(*each, counting, 1 - (1 - LEVEL) / len(drafting)) for each in drafting if counting]
    said = f" {looping} of {len(run.blocks)} prompts led to text that loops; they are not counted." if looping else ""
    if 2 * looping > len(run.blocks):
        return Verdict(results, f"{UNFIT}.{said} Choose one that writes this language.")
    if len(counting) < FEWEST:
        short = f"an interval needs {FEWEST} prompts with {LEAST} tokens or more of real text in every output, and "
        short += f"{len(counting)} of {len(run.blocks)} have that. Run `spectool bench` again with another -o, "
        return Verdict(results, f"{TOO_SHORT}: {short}--count {ENOUGH_PROMPTS} and --ignore-eos.{said}")
    drafted = [one for one in results if one.acceptance is not None]  # of the others, a difference in speed is chance
    best = max(drafted or results, key=lambda one: one.speedup)
    if not drafted:
        none = f"{_SAYS[False]}. No guess was worth its cost here, so none was checked.{said}"
        return Verdict(results, none, False, best)
    slower = all(one.high is not None and one.high < 1 for one in drafted)
    pays = False if slower else True if best.low is not None and best.low > 1 else None
    ends = "too few for an interval" if best.low is None else f"95% interval {best.low:.2f} to {best.high:.2f}"
    named = f"{best.drafter}, k = {best.draft_length}," + f" the fastest of {len(drafted)}," * (len(drafted) > 1)
    fast = f"{named} is {best.speedup:.2f} times as fast as plain decoding ({ends} over {best.prompts} prompts)"
    return Verdict(results, f"{_SAYS[pays]}. {fast}.{said}", pays, best)


def differences(run: Run) -> dict[str, Any]:
    """How many outputs at temperature 0 leave plain decoding's, and how near to a tie the two logits are there."""
    ran = [one for block in run.blocks for one in block.generations if one.drafter != PLAIN and not run.options.temp]
    gaps = [one.gap for one in ran if one.gap is not None]
    return {"outputs": len(ran), "different": len(gaps), "largest_gap": max(gaps, default=None)}


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
    if found["different"]:
        said += f" The two best logits there are {found['largest_gap']:.3g} apart at most: a pass over several tokens "
        said += "rounds differently from single steps, so near-ties may swap. Please report gaps far above 0.125."
    return said
