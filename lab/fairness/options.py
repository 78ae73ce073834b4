"""What to measure: the options of ``fairness``."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import click

from spectool.artifacts.options import option, several
from spectool.commands.options import Finite


@dataclass(frozen=True, kw_only=True)
class FairnessOptions:
    """What is measured; the help of each says what it is. Tasks, drafts and dictionaries are by their names."""

    target: str = option(str, "Target model: directory or hub id.", names=("--target", "--model"), metavar="MODEL")
    tasks: Mapping[str, str] = option(
        str,
        "Text of a language or task that no model has seen: file, directory, hf:OWNER/NAME:CONFIG#COLUMN, preset or "
        "sample:pl. May be repeated.",
        names=("--task",),
        multiple=True,
        metavar="[NAME=]SPEC",
    )
    drafts: Mapping[str, str] = option(
        str,
        "Draft model; may be repeated. The gap is that of the first; the others are what may close it.",
        names=("--draft", "--draft-model"),
        multiple=True,
        metavar="[NAME=]MODEL",
    )
    alignments: tuple[Path, ...] = several(
        click.Path(path_type=Path),
        "Alignment of a draft's tokenizer with the target's, from `spectool align`; found by fingerprint. "
        "May be repeated. Without one, a draft with another tokenizer is compared on text alone.",
        names=("--alignment",),
        metavar="DIR",
    )
    dictionaries: Mapping[str, str] = several(
        str,
        "Dictionary that may help the slow language; may be repeated.",
        names=("--dict",),
        metavar="[NAME=]DIR",
    )
    gamma: int = option(click.IntRange(1, 64), "Draft tokens a pass.", 5)
    temperatures: tuple[float, ...] = several(
        Finite(0),
        "Temperature of both models to know the acceptance at, beside that at 1; may be repeated.",
        default=(0.0,),
        names=("--temp", "--temperature"),
    )
    costs: tuple[float, ...] = several(
        Finite(0),
        "Seconds of a draft's pass over those of the target's: one for all drafts, or one for each in their order. By "
        "default the bytes of its weights over the target's.",
        names=("--cost",),
        metavar="C",
    )
    rows: int = option(click.IntRange(2), "Passages of each task to measure on.", 64)
    length: int = option(click.IntRange(2), "The target's tokens in a passage, at most.", 128)
    seed: int = option(click.IntRange(0), "Another seed, other passages.", 0)
    reference: str | None = option(
        str,
        "Task whose tokenization tax is 1; by default the one that each tokenizer serves best.",
        None,
        metavar="NAME",
    )
    parallel: bool = option(
        bool,
        "The texts are translations of each other, document by document: the tax is in tokens for the same content.",
        False,
    )

    @property
    def cost_of(self) -> dict[str, float | None]:
        """What a pass of each draft costs, in passes of the target; None for the ratio of the weights' bytes."""
        return dict(zip(self.drafts, cycle(self.costs or (None,)), strict=False))

    def __post_init__(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            click.UsageError: Some do.
        """
        drafts, costs = self.drafts, self.costs
        if both := sorted({*drafts} & {*self.dictionaries}):
            raise click.UsageError(
                f"a draft and a dictionary are both called {both[0]}; give them names, as in NAME=DIR"
            )
        if reserved := sorted({"target", "no drafting"} & {*drafts, *self.dictionaries}):
            raise click.UsageError(f"{reserved[0]} is taken; give another name, as in NAME=DIR")
        if len(costs) > 1 and len(costs) != len(drafts):
            raise click.UsageError(f"{len(costs)} --cost for {len(drafts)} drafts: give one for all, or one for each")
        if self.reference not in (None, *self.tasks):
            raise click.UsageError(f"--reference: expected one of {', '.join(self.tasks)}, got {self.reference}")
