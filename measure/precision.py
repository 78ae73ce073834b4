"""Which forms of a model have flatter passes on a chip, and what they cost in plain speed."""

import shlex

from spectool.measure.chips import chip_of, rows_for
from spectool.runtime.policy.curve import PassCurve

_ROWS = 4  # of the passes by which forms are compared
_FLATTER = 0.8  # times the cost of such a pass: less is worth a note
_SCALES = {"affine": 32, "mxfp4": 8, "nvfp4": 8, "mxfp8": 8, "none": 0}  # bits of scale and bias for each group
_GROUPS = {"affine": 64, "mxfp4": 32, "nvfp4": 16, "mxfp8": 32, "none": 1}  # weights in it, by default


def flatter_forms(chip: str, bits: int, mode: str, measured: PassCurve | None = None) -> list[str]:
    """Sentences on forms whose passes over 4 tokens are flatter on a chip than those of the present one.

    What was ``measured`` of that comes before what was published.
    """
    rows = rows_for(chip_of(chip)) if chip_of(chip) else []
    own = [row.curve for row in rows if (row.bits, row.mode) == (bits, mode)] if measured is None else [measured]
    cost = min(map(_cost, own), default=0.0)
    return [
        f"{row.form} is flatter on this chip: a pass over {_ROWS} tokens takes {_cost(row.curve):.2g} plain ones, not "
        f"{cost:.2g}, and a plain one {_read(row.bits, row.mode) / _read(bits, mode):.2g} times as long as now "
        f"({row.source}). To see what drafts gain then: spectool predict --on {shlex.quote(chip)} --bits {row.bits} "
        f"--mode {row.mode}. To convert: mlx_lm.convert --hf-path MODEL -q --q-bits {row.bits} --q-mode {row.mode} "
        "--mlx-path NEW"
        for row in rows
        if (row.bits, row.mode) != (bits, mode) and _cost(row.curve) < _FLATTER * cost
    ]


def _cost(curve: PassCurve) -> float:
    return curve.costs(_ROWS - 1, 0)[-1]


def _read(bits: int, mode: str) -> float:
    """Bits that a plain pass reads for each weight, with scales and biases: its time is proportional to them."""
    return bits + _SCALES[mode] / _GROUPS[mode]
