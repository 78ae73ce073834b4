"""A run, and what it says: speed-ups with intervals, whether drafting pays, and whether the texts are the same.

A run is a folder with ``run.jsonl``, which only ``bench`` writes, and the page ``report.md``. The first line of
``run.jsonl`` says what was measured and where. Every further line is a `Block`, written as soon as it is measured.

A speed-up is taken inside a block, against plain decoding of the same prompt. Means and intervals are over prompts.
Blocks with an output that loops or echoes its prompt do not count.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from spectool.measure.degenerate import ECHOES, LOOPS
from spectool.measure.intervals import ENOUGH_PROMPTS, FEWEST, LEAST, LEVEL, Estimate, speedup_interval
from spectool.tokenization.incremental.common_prefix import common_prefix

RUN_FILE, PAGE = "run.jsonl", "report.md"
PLAIN = "plain"  # the drafter of plain decoding
UNFIT, TOO_SHORT = "This model is unfit for measuring", "This run is too short to tell whether drafting pays"
_OF_SEVERAL = {LOOPS: "loop", ECHOES: "echo their prompt"}
_SAYS = {True: "Drafting pays", False: "Drafting does not pay", None: "It is not clear yet whether drafting pays"}


@dataclass(frozen=True)
class DrafterSpec:
    """What drafts."""

    command: tuple[str, ...]  # the options of `spectool generate` for it
    sources: Mapping[str, Any]  # arguments of `load_drafter`
    verify: str | None = None  # as for `generate_step`


@dataclass(frozen=True)
class Options:
    """What a run measures."""

    model: str  # directory or hub id of the target
    drafters: Mapping[str, DrafterSpec]  # by the name that tables have
    prompts: str  # their source, as `load_prompts` takes it
    count: int | None = None  # of prompts
    window: int = 0  # tokens of a prompt from a corpus; 0 for whole documents
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
    seconds: float  # from when the target has read the prompt to the last token; the drafter reads it meanwhile
    draft_seconds: float = 0.0  # of those, in the drafter
    proposed: tuple[int, ...] = ()  # draft tokens of each cycle
    accepted: tuple[int, ...] = ()  # of those
    fault: str | None = None  # `LOOPS` or `ECHOES`
    gap: float | None = None  # where the output leaves plain decoding's: distance of the two best logits

    @property
    def tokens(self) -> int:
        """Number of tokens in the output."""
        return len(self.output)

    @property
    def passes(self) -> int:
        """Number of passes of the target after the prompt."""
        return len(self.proposed) or len(self.output)


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
    def long_enough(self) -> bool:
        """Whether every output has `LEAST` tokens or more."""
        return min(one.tokens for one in self.generations) >= LEAST

    @property
    def fault(self) -> str | None:
        """What the first output that is no real text does; None if all of them are real text."""
        return next((one.fault for one in self.generations if one.fault), None)

    @property
    def by_configuration(self) -> dict[tuple[str, int | None], Generation]:
        """The generations by drafter and draft length."""
        return {(one.drafter, one.num_draft_tokens): one for one in self.generations}

    @property
    def plain(self) -> Generation:
        """That of plain decoding."""
        return self.by_configuration[PLAIN, 0]


@dataclass
class Run:
    """What is measured of a run."""

    path: Path
    options: Options
    facts: dict[str, Any]  # "began", "machine", "versions", and "weights": bytes of the target and by drafter
    blocks: list[Block] = field(default_factory=list)

    def append(self, block: Block) -> None:
        """Add a block, and write it."""
        begin = [] if self.blocks else [{"options": asdict(self.options), **self.facts}]
        self.blocks.append(block)
        with (self.path / RUN_FILE).open("a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(line, default=str) + "\n" for line in [*begin, asdict(block)])


@dataclass(frozen=True)
class Result:
    """What a configuration did, and how much faster than plain decoding it was."""

    drafter: str
    num_draft_tokens: int | None  # k; None if chosen while decoding
    pairs: Sequence[tuple[Generation, Generation]]  # with plain decoding of the same prompt, one pair for each prompt

    @property
    def speedups(self) -> list[float]:
        """The speed-up of each prompt."""
        return [plain.seconds / plain.tokens / (one.seconds / one.tokens) for one, plain in self.pairs]

    @cached_property
    def speedup(self) -> Estimate:
        """Geometric mean over prompts, with its 95% interval."""
        return speedup_interval(self.speedups)

    @property
    def length(self) -> int | str:
        """The draft length, or ``auto``."""
        return "auto" if self.num_draft_tokens is None else self.num_draft_tokens

    @property
    def proposed(self) -> int:
        """Draft tokens."""
        return sum(sum(one.proposed) for one, _ in self.pairs)

    def figures(self) -> dict[str, Any]:
        """The main figures; "acceptance" is None if nothing was proposed."""
        ran = [one for one, _ in self.pairs]
        proposed, accepted = self.proposed, sum(sum(one.accepted) for one in ran)
        return {
            "drafter": self.drafter,
            "draft_length": self.length,
            "prompts": self.speedup.n,
            "speedup": self.speedup.value,
            "low": self.speedup.low,
            "high": self.speedup.high,
            "acceptance": accepted / proposed if proposed else None,
            "tokens_per_pass": sum(one.tokens for one in ran) / sum(one.passes for one in ran),
        }


def judged(results: Sequence[Result]) -> tuple[bool | None, Result, Estimate]:
    """Whether drafting pays, None if that is not clear; the fastest configuration; and how much faster it is.

    That interval allows for having chosen the fastest (Bonferroni): the luckiest of many looks faster than it is.
    """
    fastest = max(results, key=lambda one: one.speedup.value)
    found = speedup_interval(fastest.speedups, 1 - (1 - LEVEL) / len(results))
    if all(one.speedup.high is not None and one.speedup.high < 1 for one in results):
        return False, fastest, found  # true of all of them, so nothing was chosen
    return True if found.low is not None and found.low > 1 else None, fastest, found


@dataclass(frozen=True)
class Verdict:
    """What a run says of drafting."""

    results: Sequence[Result]  # of every configuration; none if no prompt counts
    sentence: str
    pays: bool | None = None  # None if that is not clear
    fastest: Result | None = None  # None if there is too little real text


def verdict_of(run: Run) -> Verdict:
    """The verdict, on the blocks whose outputs are long enough and real text."""
    long = [block for block in run.blocks if block.long_enough]
    real, faults = [each for each in long if not each.fault], Counter(each.fault for each in long if each.fault)
    results = _results(run, real)
    said = " and ".join(f"{n} {what if n == 1 else _OF_SEVERAL[what]}" for what, n in faults.items())
    said = f" Of {len(long)} outputs, {said}; they are not counted." if faults else ""
    if faults.total() > len(real):
        return Verdict(results, f"{UNFIT}.{said} Choose one that writes this language.")
    if len(real) < FEWEST:
        short = (
            f"{TOO_SHORT}: of the prompts, {len(real)} got {LEAST} tokens or more of real text in every output, and an "
            f"interval needs {FEWEST}. Run `spectool bench` again with another -o, --count {ENOUGH_PROMPTS} and "
            f"--ignore-eos.{said}"
        )
        return Verdict(results, short)
    drafted = [one for one in results if one.proposed]  # of the others, a difference in speed is chance
    if not drafted:
        nothing = (
            "nothing was drafted, because no guess was likely enough for what passes over several tokens cost here"
        )
        return Verdict(results, f"{_SAYS[False]}: {nothing}.{said}", False, results[0])
    pays, fastest, found = judged(drafted)
    several = len(drafted) > 1
    only = "The only configuration" + " that drafts" * (len(results) > 1)
    which = f"The fastest of {len(drafted)} configurations" if several else only
    chosen = f"; {_ends(found)} allowing for the choice of the fastest" if several else ""
    sentence = (
        f"{_SAYS[pays]}. {which}, {fastest.drafter}, k = {fastest.length}, is {found.value:.2f} times as fast as plain "
        f"decoding (95% interval {_ends(fastest.speedup)} over {len(real)} prompts{chosen}).{said}"
    )
    return Verdict(results, sentence, pays, fastest)


def _results(run: Run, blocks: Sequence[Block]) -> list[Result]:
    """The result of every configuration on some blocks, none without a block."""
    pairs = {each: [(b.by_configuration[each], b.plain) for b in blocks] for each in run.options.configurations[1:]}
    return [Result(*each, of) for each, of in pairs.items() if of]


def _ends(found: Estimate) -> str:
    return "too few for an interval" if found.low is None else f"{found.low:.2f} to {found.high:.2f}"


def differences(run: Run) -> dict[str, Any]:
    """How many outputs at temperature 0 leave plain decoding's, where, and how near to a tie the two logits are there.

    Tokens are compared up to the first that differs, because all after it are another text.
    """
    blocks = [] if run.options.temp else run.blocks
    pairs = [(one, block.plain) for block in blocks for one in block.generations if one.drafter != PLAIN]
    places = [common_prefix(one.output, plain.output) for one, plain in pairs if one.gap is not None]
    return {
        "outputs": len(pairs),
        "tokens": sum(one.tokens for one, _ in pairs if one.gap is None) + sum(place + 1 for place in places),
        "different": len(places),
        "first_difference": min(places, default=None),
        "largest_gap": max((one.gap for one, _ in pairs if one.gap is not None), default=None),
    }
