"""What passes cost on Apple chips, as others have measured and published it: a line of ``chips.jsonl`` for each.

A line has the form that ``spectool doctor --share`` prints, so the table grows by what users send. Where nobody has
timed a model, its pass is a range, by bandwidth and a time for each pass:

    seconds = bytes of the weights / (share * bandwidth) + a fixed time

``bandwidth.toml`` has the figures with their sources, and passes that others have timed, which lie in the range.
"""

import re
import tomllib
from functools import cache
from importlib.resources import files
from itertools import pairwise, product
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from spectool import SpectoolError
from spectool.runtime.policy.curve import PassCurve
from spectool.runtime.policy.record import DraftCost

_FALLING = 0.95  # a pass over more rows may take this share of the time of one over fewer: noise
# Bits of scale and bias for each weight, in groups of the default size:
_SCALES = {"affine": 32 / 64, "mxfp4": 8 / 32, "nvfp4": 8 / 16, "mxfp8": 8 / 32, "none": 0.0}
_READ_AT_ONCE = 8  # tokens of a text that a small model reads in about the time of one
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
        return form_of(self.bits, self.mode)

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


def rows_for(chip: str) -> list[ChipCosts]:
    """The rows of a chip, by `chip_of`, and for forms that nobody measured on it those of its whole generation.

    Mixtures of experts are left out, because they say nothing of other models.
    """
    rows = [row for row in published() if not row.experts]
    own = [row for row in rows if chip in row.chips]
    measured, generation = {row.form for row in own}, chip.partition(" ")[0]
    near = [row for row in rows if generation in {each.partition(" ")[0] for each in row.chips}]
    return own + [row for row in near if row.form not in measured]


def form_of(bits: int, mode: str) -> str:
    """Bits and mode of weights in words."""
    return f"{bits}-bit {mode}" if mode in ("affine", "none") else mode


def read_bits(bits: int, mode: str) -> float:
    """Bits that a plain pass reads for each weight, with scales and biases: its time is proportional to them."""
    return bits + _SCALES[mode]


@cache
def known() -> dict[str, Any]:
    """The figures."""
    return tomllib.loads((files("spectool.measure") / "bandwidth.toml").read_text(encoding="utf-8"))


def pass_seconds(chip: str, weights: float) -> list[float]:
    """Seconds of a plain pass over bytes of weights, at the four ends of what a chip, by `chip_of`, may be.

    Raises:
        SpectoolError: Its bandwidth is not known.
    """
    table = known()
    if (peak := table["gigabytes_per_second"].get(chip)) is None:
        raise SpectoolError(
            f"the bandwidth of {chip} is not in the table, so what a draft model would cost there is not guessed. "
            f"Known: {', '.join(table['gigabytes_per_second'])}"
        )
    bandwidths = peak[0] * table["share"]["low"], peak[1] * table["share"]["high"]
    fixed = table["milliseconds"]["ultra" if chip.endswith("Ultra") else "one"]
    return [weights / (1e9 * bandwidth) + each / 1e3 for bandwidth, each in product(bandwidths, fixed)]


def cost_range(chip: str, draft: float, target: float) -> tuple[DraftCost, DraftCost]:
    """The least and the most that a draft model may cost on a chip, both models given by the bytes of their weights."""
    ends = zip(pass_seconds(chip, draft), pass_seconds(chip, target), strict=True)
    shares = [one / other for one, other in ends]
    low, high = (DraftCost(share, share / _READ_AT_ONCE) for share in (min(shares), max(shares)))
    return low, high
