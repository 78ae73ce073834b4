"""A run in a folder: ``run.jsonl``, which only ``bench`` writes, and the page ``report.md``.

The first line of ``run.jsonl`` says what was measured, and where. Every further line is a `Block`, written when all of
it is measured, so a run that is stopped keeps what it has.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from spectool.measure.intervals import LEAST

RUN_FILE, PAGE = "run.jsonl", "report.md"
PLAIN = "plain"  # the drafter of plain decoding


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
    prompts: tuple[str, ...]  # sources, as `load_prompts` takes them
    count: int | None = None  # total number of prompts
    window: int = 0  # tokens of a prompt from a corpus; 0 for whole documents
    num_draft_tokens: tuple[int | None, ...] = (None,)  # None for automatic
    tokens: int = 128  # maximum number after each prompt
    temperatures: tuple[float, ...] = (0.0,)  # 0 takes the most probable tokens
    seed: int = 0  # of the order in a block, and of sampling
    ignore_eos: bool = False  # go on after the model ends its text
    pause: float = 0.0  # seconds of rest before each prompt, so that a machine without a fan begins equally cool

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
    seconds: float  # in which the drafter reads the prompt and all is decoded; the target has read the prompt before
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
        """What the first output that is no real text does, None if all are."""
        return next((one.fault for one in self.generations if one.fault), None)

    @property
    def counts(self) -> bool:
        """Whether its speeds count in a verdict."""
        return self.long_enough and self.fault is None

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
