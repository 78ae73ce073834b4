"""What a run says: speed-ups with intervals, whether drafting pays, and whether the texts are the same.

A speed-up is taken inside a block, against plain decoding of the same prompt. Means and intervals are over prompts.
There is a verdict for each source of prompts at each temperature, in which all configurations decode the same prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from spectool.measure.bench.run_file import PLAIN, Block, Generation, Run
from spectool.measure.intervals import LEAST, LEVEL, Estimate, speedup_interval, too_short
from spectool.tokenization.incremental.common_prefix import common_prefix

NO_FIGURE = "—"
FIGURES = ("k", "speed-up", "95% interval", "acceptance", "tokens per pass", "plain steps per pass", "prompts")
"""Columns of a summary table, after those that name its rows."""


@dataclass(frozen=True)
class Result:
    """What a configuration did, and how much faster than plain decoding it was."""

    source: str  # of the prompts
    temperature: float
    drafter: str
    num_draft_tokens: int | None  # k; None if chosen while decoding
    pairs: Sequence[tuple[Generation, Generation]]  # with plain decoding of the same prompt, one pair for each prompt

    @property
    def label(self) -> str:
        """Drafter and draft length."""
        return f"{self.drafter}, k = {_length(self.num_draft_tokens)}"

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
        return sum(one.tokens for one, _ in self.pairs) / self._passes

    @property
    def cycle(self) -> float:
        """What a pass takes with the drafting for it, in steps of plain decoding of the same prompts."""
        step = sum(plain.seconds for _, plain in self.pairs) / sum(plain.tokens for _, plain in self.pairs)
        return sum(one.decoding_seconds for one, _ in self.pairs) / self._passes / step

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
            "plain_steps_per_pass": self.cycle,
            "different": None if self.temperature else sum(one.gap is not None for one, _ in self.pairs),
        }

    @property
    def _passes(self) -> int:
        return sum(one.passes for one, _ in self.pairs)


@dataclass(frozen=True)
class Verdict:
    """The verdict on the prompts of one source at one temperature."""

    scope: str  # source and temperature, in words
    results: Sequence[Result]  # of every configuration; none if no prompt counts

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
    def pays(self) -> bool | None:
        """Whether drafting pays; None if that cannot be told."""
        if not self.results:
            return None
        if all(one.speedup.high is not None and one.speedup.high < 1 for one in self.results):
            return False  # true of all of them, so nothing was chosen
        return True if self.allowing.low is not None and self.allowing.low > 1 else None

    @property
    def sentence(self) -> str:
        """The verdict as one sentence that begins with its scope."""
        if short := too_short(self.fastest.speedup.n if self.results else 0):
            return f"{self.scope}: {short}."
        found, number = self.fastest.speedup, len(self.results)
        says = {True: "drafting pays", False: "drafting does not pay", None: "it cannot be told whether drafting pays"}
        which = f"the fastest of {number} configurations" if number > 1 else "the only configuration"
        interval = f"95% interval {found.ends} over {found.n} prompts"
        interval += f"; {self.allowing.ends} allowing for the choice of the fastest" if number > 1 else ""
        return (
            f"{self.scope}: {says[self.pays]}; {which}, {self.fastest.label}, is {found.value:.2f} times as fast as "
            f"plain decoding ({interval})."
        )


def counts(block: Block) -> bool:
    """Whether every output has `LEAST` tokens or more."""
    return min(one.tokens for one in block.generations) >= LEAST


def verdicts(run: Run) -> list[Verdict]:
    """A verdict for every source and temperature, on the blocks that count (`counts`)."""
    sources = list(dict.fromkeys(block.source for block in run.blocks))
    temperatures = sorted({block.temperature for block in run.blocks})
    found = []
    for source, temperature in product(sources, temperatures):
        blocks = [block for block in run.blocks if (block.source, block.temperature) == (source, temperature)]
        rows = [block.by_configuration() for block in filter(counts, blocks)]
        plain, *drafted = run.header.options.configurations
        results = [
            Result(source, temperature, *each, pairs=[(row[each], row[plain]) for row in rows])
            for each in drafted
            if rows
        ]
        scope = f"{source}, temperature {temperature:g}" if len(temperatures) > 1 else source
        found += [Verdict(scope, results)] if blocks else []
    return found


def differences(run: Run) -> dict[str, Any]:
    """How many outputs at temperature 0 leave plain decoding's, and where.

    Tokens are compared up to the first that differs, because all after it are another text.
    """
    pairs = [
        (one, block.plain)
        for block in run.blocks
        for one in block.generations
        if block.temperature == 0 and one.drafter != PLAIN
    ]
    places = [None if one.gap is None else common_prefix(one.output, plain.output) for one, plain in pairs]
    parted = [place for place in places if place is not None]
    tokens = sum(one.tokens if place is None else place + 1 for (one, _), place in zip(pairs, places, strict=True))
    return {
        "compared": {"outputs": len(pairs), "tokens": tokens},
        "different": len(parted) if pairs else None,
        "first_difference": min(parted, default=None),
        "largest_gap": max((one.gap for one, _ in pairs if one.gap is not None), default=None),
    }


def describe_differences(found: dict[str, Any]) -> str:
    """`differences` in words."""
    number, outputs, tokens = found["different"], found["compared"]["outputs"], found["compared"]["tokens"]
    if number is None:
        return "not compared, because outputs above temperature 0 are drawn"
    if not number:
        return f"0 of {outputs:,} outputs, {tokens:,} tokens"
    return (
        f"{number:,} of {outputs:,} outputs, one in {tokens / number:,.0f} tokens, the first after "
        f"{found['first_difference']:,}; the two best logits there are {found['largest_gap']:.3g} apart at most"
    )


def summary_table(found: Sequence[Verdict]) -> tuple[list[str], list[list[str]]]:
    """Header, and a row for each configuration; a speed-up without an interval is left out, as it may mislead."""
    several, rows = len(found) > 1, []
    for verdict in found:
        for one in verdict.results:
            speedup = one.speedup
            row = [verdict.scope] * several + [one.drafter, _length(one.num_draft_tokens)]
            row += [NO_FIGURE, ""] if speedup.low is None else [cell(speedup.value), speedup.ends]
            row += [cell(one.acceptance, ".0%"), cell(one.tokens_per_pass), cell(one.cycle), str(speedup.n)]
            rows.append(row)
    return ["where"] * several + ["drafter", *FIGURES], rows


def left_out(run: Run) -> int:
    """Number of prompts that do not count, at some temperature."""
    return len({block.prompt for block in run.blocks if not counts(block)})


def cell(value: Any, spec: str = ".2f") -> str:
    """A figure as text, or `NO_FIGURE` if there is none.

    >>> cell(1.2345), cell(0.4157, ".0%"), cell(None), cell(float("nan"))
    ('1.23', '42%', '—', '—')
    """
    return NO_FIGURE if value is None or value != value else format(value, spec)


def _length(num_draft_tokens: int | None) -> str:
    return "auto" if num_draft_tokens is None else str(num_draft_tokens)
