"""What a run says: speed-ups with intervals, whether drafting pays, and whether the texts are the same.

A speed-up is taken inside a block, against plain decoding of the same prompt. Means and intervals are over prompts.
There is a verdict for each source of prompts at each temperature, in which all configurations decode the same prompts.
Blocks with an output that loops or echoes its prompt have speeds of their own, and no part in the verdict.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from spectool.measure.bench.run_file import PLAIN, Block, Generation, Run
from spectool.measure.degenerate import ECHOES, LOOPS
from spectool.measure.intervals import FEWEST, LEVEL, Estimate, speedup_interval, too_short
from spectool.tokenization.incremental.common_prefix import common_prefix

NO_FIGURE = "—"
FIGURES = ("k", "speed-up", "95% interval", "acceptance", "tokens per pass", "prompts")
"""Columns of a summary table, after those that name its rows."""
_OF_SEVERAL = {LOOPS: "loop", ECHOES: "echo their prompt"}
_SAYS = {True: "drafting pays", False: "drafting does not pay", None: "it is not clear yet whether drafting pays"}


@dataclass(frozen=True)
class Result:
    """What a configuration did, and how much faster than plain decoding it was."""

    source: str  # of the prompts
    temperature: float
    drafter: str
    num_draft_tokens: int | None  # k; None if chosen while decoding
    pairs: Sequence[tuple[Generation, Generation]]  # with plain decoding of the same prompt, one pair for each prompt

    @property
    def length(self) -> str:
        """The draft length in words."""
        return "auto" if self.num_draft_tokens is None else str(self.num_draft_tokens)

    @cached_property
    def speedup(self) -> Estimate:
        """Geometric mean over prompts, with its 95% interval."""
        return speedup_interval(self.speedups)

    @property
    def speedups(self) -> list[float]:
        """The speed-up of each prompt."""
        return [plain.seconds / plain.tokens / (one.seconds / one.tokens) for one, plain in self.pairs]

    @property
    def acceptance(self) -> float | None:
        """Accepted / proposed draft tokens; None if none was proposed."""
        proposed = sum(sum(one.proposed) for one, _ in self.pairs)
        return sum(sum(one.accepted) for one, _ in self.pairs) / proposed if proposed else None

    @property
    def tokens_per_pass(self) -> float:
        """Committed tokens / passes of the target."""
        return sum(one.tokens for one, _ in self.pairs) / sum(one.passes for one, _ in self.pairs)

    def figures(self) -> dict[str, Any]:
        """The main figures for programs; "different" is None for drawn outputs, which are not compared."""
        return {
            "source": self.source,
            "temperature": self.temperature,
            "drafter": self.drafter,
            "num_draft_tokens": self.num_draft_tokens,
            "prompts": self.speedup.n,
            "speedup": self.speedup.value,
            "low": self.speedup.low,
            "high": self.speedup.high,
            "acceptance": self.acceptance,
            "tokens_per_pass": self.tokens_per_pass,
            "different": None if self.temperature else sum(one.gap is not None for one, _ in self.pairs),
        }


@dataclass(frozen=True)
class Verdict:
    """The verdict on the prompts of one source at one temperature."""

    scope: str  # source and temperature, in words
    results: Sequence[Result]  # of every configuration, on real text; none if no prompt counts
    apart: Sequence[Result] = ()  # the same on text that loops or echoes
    faults: Counter[str] = field(default_factory=Counter)  # prompts with such text, by what it does
    prompts: int = 0  # with such text or without

    @property
    def unfit(self) -> bool:
        """Whether the model wrote mostly text that loops or echoes, so that nothing can be measured on it."""
        return 2 * self.faults.total() > self.prompts

    @cached_property
    def fastest(self) -> Result:
        """The configuration with the largest speed-up."""
        return max(self.results, key=lambda one: one.speedup.value)

    @cached_property
    def allowing(self) -> Estimate:
        """The speed-up of the fastest, with an interval that allows for having chosen it (Bonferroni).

        The luckiest of many configurations looks faster than it is.
        """
        return speedup_interval(self.fastest.speedups, 1 - (1 - LEVEL) / len(self.results))

    @property
    def enough(self) -> bool:
        """Whether there is enough real text for an interval."""
        return bool(self.results) and not self.unfit and self.fastest.speedup.n >= FEWEST

    @property
    def pays(self) -> bool | None:
        """Whether drafting pays; None if that is not clear."""
        if not self.enough:
            return None
        if all(one.speedup.high is not None and one.speedup.high < 1 for one in self.results):
            return False  # true of all of them, so nothing was chosen
        return True if self.allowing.low is not None and self.allowing.low > 1 else None

    @property
    def sentence(self) -> str:
        """The verdict in words, beginning with its scope."""
        faults = " and ".join(f"{n} {what if n == 1 else _OF_SEVERAL[what]}" for what, n in self.faults.items())
        if self.unfit:
            return (
                f"{self.scope}: this model is unfit for measuring: of its outputs after {self.prompts} prompts, "
                f"{faults}, and drafts are nearly always right about such text. Choose one that writes this language."
            )
        apart = f" Not counted: of {self.prompts} outputs, {faults}." if faults else ""
        if not self.enough:
            return f"{self.scope}: {too_short(self.fastest.speedup.n if self.results else 0)}.{apart}"
        found, number = self.fastest.speedup, len(self.results)
        which = f"The fastest of {number} configurations" if number > 1 else "The only configuration"
        interval = f"95% interval {found.ends} over {found.n} prompts"
        interval += f"; {self.allowing.ends} allowing for the choice of the fastest" if number > 1 else ""
        return (
            f"{self.scope}: {_SAYS[self.pays]}. {which}, {self.fastest.drafter}, k = {self.fastest.length}, is "
            f"{found.value:.2f} times as fast as plain decoding ({interval}).{apart}"
        )


def verdicts(run: Run) -> list[Verdict]:
    """A verdict for every source and temperature, on the blocks that count."""
    sources = list(dict.fromkeys(block.source for block in run.blocks))
    temperatures = sorted({block.temperature for block in run.blocks})
    found = []
    for source, temperature in product(sources, temperatures):
        own = [block for block in run.blocks if (block.source, block.temperature) == (source, temperature)]
        long = [block for block in own if block.long_enough]
        real, apart = [block for block in long if block.counts], [block for block in long if not block.counts]
        scope = f"{source}, temperature {temperature:g}" if len(temperatures) > 1 else source
        faults = Counter(block.fault for block in apart if block.fault)
        found += [Verdict(scope, _results(run, real), _results(run, apart), faults, len(long))] if own else []
    return found


def _results(run: Run, blocks: Sequence[Block]) -> list[Result]:
    """The result of every configuration on some blocks, none without a block."""
    return [
        Result(blocks[0].source, blocks[0].temperature, *each, [(b.by_configuration[each], b.plain) for b in blocks])
        for each in run.options.configurations[1:]
        if blocks
    ]


def differences(run: Run) -> dict[str, Any]:
    """How many outputs at temperature 0 leave plain decoding's, where, and how near to a tie the two logits are there.

    Tokens are compared up to the first that differs, because all after it are another text.
    """
    blocks = [block for block in run.blocks if block.temperature == 0]
    pairs = [(one, block.plain) for block in blocks for one in block.generations if one.drafter != PLAIN]
    left = {i: common_prefix(one.output, plain.output) for i, (one, plain) in enumerate(pairs) if one.gap is not None}
    number, gap = len(left), max((one.gap for one, _ in pairs if one.gap is not None), default=None)
    tokens = sum(left.get(place, one.tokens - 1) + 1 for place, (one, _) in enumerate(pairs))
    said = f"{number:,} of {len(pairs):,} outputs, {tokens:,} tokens"
    if number:
        said += f", the first after {min(left.values()):,}; the two best logits there are {gap:.3g} apart at most"
    return {
        "differences": said if pairs else "not compared, because outputs above temperature 0 are drawn",
        "compared": {"outputs": len(pairs), "tokens": tokens},
        "different": number if pairs else None,
        "first_difference": min(left.values(), default=None),
        "largest_gap": gap,
    }


def summary_table(found: Sequence[Verdict]) -> tuple[list[str], list[list[str]]]:
    """Header, and a row for each configuration; a speed-up without an interval is left out, as it may mislead."""
    several, rows = len(found) > 1 or any(verdict.apart for verdict in found), []
    for verdict in found:
        text = f"{verdict.scope}, looping or echoing"
        for scope, one in [(verdict.scope, one) for one in verdict.results] + [(text, one) for one in verdict.apart]:
            speed = [NO_FIGURE, ""] if one.speedup.low is None else [cell(one.speedup.value), one.speedup.ends]
            rest = [cell(one.acceptance, ".0%"), cell(one.tokens_per_pass), str(one.speedup.n)]
            rows.append([scope] * several + [one.drafter, one.length, *speed, *rest])
    return ["text"] * several + ["drafter", *FIGURES], rows


def cell(value: Any, spec: str = ".2f") -> str:
    """A figure as text, or `NO_FIGURE` if there is none.

    >>> cell(1.2345), cell(0.4157, ".0%"), cell(None), cell(float("nan"))
    ('1.23', '42%', '—', '—')
    """
    return NO_FIGURE if value is None or value != value else format(value, spec)
