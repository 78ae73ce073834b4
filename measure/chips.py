"""What passes cost on Apple chips, as others have measured and published it: a line of ``chips.jsonl`` for each.

A line has the form that ``spectool doctor --share`` prints, so the table grows by what users send.
"""

import re
from importlib.resources import files
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from spectool.runtime.policy.curve import PassCurve

_FALLING = 0.95  # a pass over more rows may take this share of the time of one over fewer: noise
_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Context = Annotated[int, Field(ge=0, le=10**7)]
_Rows = Annotated[int, Field(ge=1, le=64)]
_Cost = Annotated[float, Field(ge=0.5, le=100)]


class ChipCosts(BaseModel):
    """What passes of a kind of model cost on a kind of chip."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    chips: Annotated[tuple[_Name, ...], Field(min_length=1)]  # without "Apple", such as M4 Pro
    bits: Annotated[int, Field(ge=1, le=32)]  # of a weight, without scales
    mode: Literal["affine", "mxfp4", "nvfp4", "mxfp8", "none"]  # of quantisation, as mlx names it
    scope: Literal["pass", "matrix"]  # what was timed: a whole model, or one of its matrices, which is steeper
    curves: Annotated[dict[_Context, dict[_Rows, _Cost]], Field(min_length=1, max_length=16)]  # in plain passes
    source: _Name  # where it was published
    seen: _Name  # year and month in which it was read there, or measured
    group: Annotated[int, Field(ge=1, le=1024)] | None = None  # weights that share a scale
    parameters: Annotated[float, Field(gt=0, le=10_000)] | None = None  # billions of weights
    experts: bool = False  # a mixture of experts, in which each row reads other weights
    about: dict[str, _Name | float] = Field(default_factory=dict)  # versions, memory, seconds

    @field_validator("curves")
    @classmethod
    def _rising(cls, curves: dict[int, dict[int, float]]) -> dict[int, dict[int, float]]:
        for curve in curves.values():
            steps = pairwise(cost for _, cost in sorted(curve.items()))
            if len(curve) < 2 or curve.get(1) != 1.0 or any(more < _FALLING * fewer for fewer, more in steps):
                raise ValueError(f"expected 1.0 for 1 row, and no less for more rows, got {curve}")
        return curves

    @property
    def form(self) -> str:
        """Bits and mode in words."""
        return f"{self.bits}-bit {self.mode}" if self.mode in ("affine", "none") else self.mode

    @property
    def title(self) -> str:
        """What was measured, and the source."""
        size = f"{self.parameters:g}B, " if self.parameters else "one matrix, " if self.scope == "matrix" else ""
        return f"{' and '.join(self.chips)}, {self.form}, {size}{self.source}"

    @property
    def curve(self) -> PassCurve:
        """The curve through its points."""
        return PassCurve(self.curves, dict.fromkeys(self.curves, 1.0))


def published() -> list[ChipCosts]:
    """The table; a row with an impossible value is pydantic's `ValidationError`, which names the field."""
    lines = (files("spectool.measure") / "chips.jsonl").read_text(encoding="utf-8").splitlines()
    return [ChipCosts.model_validate_json(line) for line in lines]


def chip_of(name: str) -> str:
    """The chip in the name of a machine; empty if there is none.

    >>> chip_of("MacBook Air M2"), chip_of("Apple m4 pro")
    ('M2', 'M4 Pro')
    """
    found = re.search(r"\bM\d+( Pro| Max| Ultra)?\b", name.title())
    return found[0] if found else ""


def rows_for(chip: str, *, experts: bool = False) -> list[ChipCosts]:
    """The rows of a chip, by `chip_of`; those of ``M2`` hold for ``M2 Max`` as well where that has none."""
    rows = [row for row in published() if row.experts == experts]
    return [row for row in rows if chip in row.chips] or [row for row in rows if chip.split(" ")[0] in row.chips]
