"""The grid of a sweep: what is measured, on which text and with which tokenizers.

A grid is a TOML file. What it leaves out is as in the paper's section 4, so that tokenizers and
languages alone repeat the paper::

    num_draft_tokens = [8]                # longest proposals
    replay_tokens = 0                     # tokens to replay of each text, 0 for all

    [tokenizers]                          # name = what `--tokenizer` takes
    "gemma-3" = "google/gemma-3-4b-it"

    [languages.uk]                        # one table for each language
    build = "wiki-uk.txt"                 # what `--corpus` takes; without it, fertility alone is measured
    counts = "uk.counts"                  # of that text, from `spectool count`; counted for this sweep if not given
    replay = "news-uk.txt"
    script = "cyrillic"                   # keep the lines in one script: cyrillic or latin
    split_as = "uk"                       # as build-dict's --language

    [dictspec]                            # one table for each method
    readings = ["whole"]
    orders = ["n1", "n12", "n123"]
    entries = [10_000, 50_000, 100_000, 200_000, 500_000, 1_000_000]
    min_prob = [0.2, 0.5, 0.8, 0.9, 1.0]

    [backoff]                             # not in the paper
    max_bytes = [500_000, 1_000_000, 2_000_000, 5_000_000]
    min_prob = [0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5]    # of the proposal, at run time
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt, Strict, model_validator

from spectool.build.dictionary.options import Reading
from spectool.measure.settings_file import Table, read_settings

Script = Literal["cyrillic", "latin"]
Order = Literal["n1", "n12", "n123"]
Value = TypeVar("Value")


Axis: TypeAlias = Annotated[
    tuple[Value, ...], Strict(False), Field(min_length=1), AfterValidator(lambda values: tuple(dict.fromkeys(values)))
]
Probability = Annotated[float, Field(ge=0, le=1)]


class Language(Table):
    """Text of one language, or of one script of it; keys as above. Without a text to build from, fertility only."""

    replay: str
    build: str | None = None
    counts: str | None = None
    script: Script | None = None
    split_as: str | None = None


class DictSpecAxes(Table):
    """Dictionaries of the DictSpec method; by default those of the paper's section 4.4."""

    readings: Axis[Reading] = ("whole",)
    orders: Axis[Order] = ("n1", "n12", "n123")
    entries: Axis[PositiveInt] = (10_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
    min_prob: Axis[Probability] = (0.2, 0.5, 0.8, 0.9, 1.0)

    def settings(self) -> Iterator[dict[str, Any]]:
        """Yield the settings of each dictionary, as columns of `results`; those of one order stand together."""
        for values in product(self.orders, self.readings, sorted(self.entries), sorted(self.min_prob)):
            yield dict(zip(("order", "reading", "entries_asked", "min_prob"), values, strict=True))


class BackoffAxes(Table):
    """Dictionaries of the backoff method."""

    max_bytes: Axis[PositiveInt] = (500_000, 1_000_000, 2_000_000, 5_000_000)
    min_prob: Axis[Probability] = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)

    def settings(self) -> Iterator[dict[str, Any]]:
        """Yield the settings of each drafter, as columns of `results`; those of one size stand together."""
        for values in product(sorted(self.max_bytes), sorted(self.min_prob)):
            yield dict(zip(("max_bytes", "min_prob"), values, strict=True))


class Grid(Table):
    """A sweep, in full; keys as above. Without a method, the paper's."""

    tokenizers: Annotated[dict[str, str], Field(min_length=1)]
    languages: Annotated[dict[str, Language], Field(min_length=1)]
    num_draft_tokens: Axis[Annotated[int, Field(ge=0, le=64)]] = (8,)  # section 4.5
    replay_tokens: NonNegativeInt = 0
    dictspec: DictSpecAxes | None = None
    backoff: BackoffAxes | None = None

    @model_validator(mode="after")
    def _expect_text(self) -> Self:
        for name, language in self.languages.items():
            if self.backoff and language.counts and not language.build:
                raise ValueError(f"languages.{name}.build: expected a text for [backoff], got none")
        return self

    @property
    def methods(self) -> dict[str, DictSpecAxes | BackoffAxes]:
        """The axes of each method; the paper's if none is named."""
        named = {"dictspec": self.dictspec, "backoff": self.backoff}
        return {name: axes for name, axes in named.items() if axes} or {"dictspec": DictSpecAxes()}


def read_grid(path: Path) -> Grid:
    """Read a grid from a TOML file.

    Raises:
        SpectoolError: It cannot be read, or something in it is not what it should be; names the key.
    """
    return read_settings(path, Grid, "a grid", "`spectool emulate --help` shows one; `paper` is built in")
