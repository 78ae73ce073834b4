"""The grid of a sweep: what is measured, on which text and with which tokenizers.

A grid is a TOML file whose tables and keys are those of `Grid`; the help of ``spectool lab sweep`` shows one. What the
file leaves out is as in section 4 of the DictSpec paper, so tokenizers and languages alone repeat the paper.
"""

import tomllib
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt, ValidationError

from spectool import SpectoolError
from spectool.lab.dictspec import PhraseReading
from spectool.lab.sweep.checked import Checked, Several, problems

Order = Literal["n1", "n12", "n123"]
Value = TypeVar("Value")
Axis: TypeAlias = Annotated[Several[Value], AfterValidator(lambda values: tuple(dict.fromkeys(values)))]
Probability = Annotated[float, Field(ge=0, le=1)]
Settings = Iterator[dict[str, Any]]
"""The settings of one dictionary or drafter after the other, as columns of `results`."""


class Language(Checked):
    """Text of one language, or of one script of it; corpora are named as in ``--corpus``."""

    build: str
    replay: str
    script: Literal["cyrillic", "latin"] | None = None  # of the lines to keep; None for all


class DictSpecAxes(Checked):
    """Dictionaries of the DictSpec method; by default those of section 4.4 of the paper."""

    readings: Axis[PhraseReading] = ("whole",)
    orders: Axis[Order] = ("n1", "n12", "n123")
    entries: Axis[PositiveInt] = (10_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
    min_prob: Axis[Probability] = (0.2, 0.5, 0.8, 0.9, 1.0)

    def settings(self) -> Settings:
        """The settings of each dictionary, grouped by order."""
        return _combined(
            order=self.orders,
            entries_asked=sorted(self.entries),
            reading=self.readings,
            min_prob=sorted(self.min_prob),
        )


class BackoffAxes(Checked):
    """Dictionaries of the backoff method, which is not in the paper."""

    max_bytes: Axis[PositiveInt] = (500_000, 1_000_000, 2_000_000, 5_000_000)
    min_prob: Axis[Probability] = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)  # of the proposal, at run time

    def settings(self) -> Settings:
        """The settings of each drafter, grouped by size."""
        return _combined(max_bytes=sorted(self.max_bytes), min_prob=sorted(self.min_prob))


class Grid(Checked):
    """A whole sweep; where no method is named, that of the paper."""

    tokenizers: Annotated[dict[str, str], Field(min_length=1)]  # name -> what --tokenizer takes
    languages: Annotated[dict[str, Language], Field(min_length=1)]
    num_draft_tokens: Axis[Annotated[int, Field(ge=0, le=64)]] = (8,)  # longest proposals; section 4.5
    replay_tokens: NonNegativeInt = 0  # of each text, 0 for all
    dictspec: DictSpecAxes | None = None
    backoff: BackoffAxes | None = None

    @property
    def methods(self) -> dict[str, DictSpecAxes | BackoffAxes]:
        """The axes of each method; those of the paper if none is named."""
        named = {"dictspec": self.dictspec, "backoff": self.backoff}
        return {name: axes for name, axes in named.items() if axes} or {"dictspec": DictSpecAxes()}


def read_grid(path: Path) -> Grid:
    """The grid of a TOML file.

    Raises:
        SpectoolError: The file cannot be read, or a key in it is wrong; names the key.
    """
    hint = "`spectool lab sweep --help` shows one"
    try:
        return Grid.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise SpectoolError(f"{path}: {problems(error)}. {hint}") from error
    except OSError as error:
        raise SpectoolError(f"{path}: the grid cannot be read ({error.strerror}). {hint}") from error
    except ValueError as error:
        raise SpectoolError(f"{path}: is not TOML: {error}. {hint}") from error


def _combined(**axes: Iterable[Any]) -> Settings:
    """Every combination of values; those of the last axis vary fastest."""
    return (dict(zip(axes, values, strict=True)) for values in product(*axes.values()))
