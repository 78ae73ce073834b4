"""What passes cost on Apple chips, as others have measured and published it: a line of ``chips.jsonl`` for each.

A line has the form that ``spectool doctor --share`` prints, so the table grows by what users send. Where nobody has
timed a model, its pass is a range, by bandwidth and a time for each pass:

    seconds = bytes of the weights / (share * bandwidth) + a fixed time

``bandwidth.toml`` has the figures with their sources, and passes that others have timed, which lie in the range.
"""

import re
import tomllib
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from spectool import SpectoolError
from spectool.runtime.policy.curve import PassCurve
from spectool.runtime.policy.record import DraftCost

# Bits of scale and bias for each weight, in groups of the default size:
_SCALES = {"affine": 32 / 64, "mxfp4": 8 / 32, "nvfp4": 8 / 16, "mxfp8": 8 / 32, "none": 0.0}
_READ_AT_ONCE = 8  # tokens of a text that a small model reads in about the time of one


class ChipCosts(BaseModel):
    """What passes of a kind of model cost on a kind of chip."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    chips: tuple[str, ...]  # without "Apple", such as M4 Pro
    bits: int  # of a weight, without scales
    mode: Literal["affine", "mxfp4", "nvfp4", "mxfp8", "none"]  # of quantisation, as mlx names it
    scope: Literal["pass", "matrix"]  # what was timed: a whole model, or one of its matrices, which is steeper
    curves: dict[int, dict[int, float]]  # plain passes, by tokens of context and by rows
    source: str  # where it was published
    seen: str  # year and month in which it was read there, or measured
    group: int | None = None  # weights that share a scale
    parameters: float | None = None  # billions of weights
    experts: bool = False  # a mixture of experts, in which each row reads other weights
    about: dict[str, str | float] = {}  # versions, memory, seconds

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
    """The table."""
    lines = Path(__file__).with_name("chips.jsonl").read_text(encoding="utf-8").splitlines()
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
    return tomllib.loads(Path(__file__).with_name("bandwidth.toml").read_text(encoding="utf-8"))


def pass_seconds(chip: str, weights: float) -> list[float]:
    """Seconds of a plain pass over bytes of weights, at the four ends of what a chip, by `chip_of`, may be.

    Raises:
        SpectoolError: Its bandwidth is not known.
    """
    bandwidth, share, fixed = (known()[name] for name in ("gigabytes_per_second", "share", "milliseconds"))
    if chip not in bandwidth:
        raise SpectoolError(
            f"the bandwidth of {chip} is not in the table, so what a draft model would cost there is not guessed. "
            f"Known: {', '.join(bandwidth)}"
        )
    least, most = bandwidth[chip]
    ends = product((share["low"] * least, share["high"] * most), fixed["ultra" if chip.endswith("Ultra") else "one"])
    return [weights / (1e9 * each) + milliseconds / 1e3 for each, milliseconds in ends]


def cost_range(chip: str, draft: float, target: float) -> tuple[DraftCost, DraftCost]:
    """The least and the most that a draft model may cost on a chip, both models given by the bytes of their weights."""
    both = zip(pass_seconds(chip, draft), pass_seconds(chip, target), strict=True)
    shares = [one / other for one, other in both]
    low, high = (DraftCost(share, share / _READ_AT_ONCE) for share in (min(shares), max(shares)))
    return low, high
