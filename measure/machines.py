"""Where a model writes: what passes cost there, as measured on this machine or published of a chip, and how sure it is.

This machine also says what would make drafts cheaper on it, and what others may learn from its measurement.
"""

import os
import platform
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

import mlx.core as mx
from mlx.utils import tree_flatten

from spectool import SpectoolError
from spectool.measure.chips import ChipCosts, chip_of, cost_range, form_of, read_bits, rows_for
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_model
from spectool.runtime.machine import blas_advice, machine_name, weight_bytes
from spectool.runtime.mlx_lm_compat import get_total_parameters
from spectool.runtime.policy.costs import known_costs, measured_draft_cost
from spectool.runtime.policy.curve import FREE, PassCurve
from spectool.runtime.policy.measuring import DEPTHS, Passes
from spectool.runtime.policy.pass_costs import PassCosts
from spectool.runtime.policy.record import DraftCost

# What a pass with drafts takes more than a plain one may turn out to be these times as much as the curve says:
_MEASURED = 0.9, 1.25  # the least of several times, which is hardly ever too long
_PUBLISHED = {"pass": (0.8, 1.25), "matrix": (0.6, 1.1)}  # attention and norms are flatter than a matrix
_FAR = 3  # times the size that was measured: another kind of model
_SHORT = 1024  # tokens of context after which a pass still takes about as long as after none
_LAYERS = 0.5, 1.0  # of what a layer of the demo model takes, which waits for its tokens
_SMALL_PASSES = 8
_ROWS = 4  # of the passes by which forms of weights are compared
_CHEAPER = 0.8  # times the present time of such a pass: more is not recommended
# Of a text's time on this machine, which two equal texts are apart; and where other programs disturbed the measurement.
APART, DISTURBED = 0.04, 0.08
NO_COST = DraftCost(0.0, 0.0)  # of a draft model whose passes are counted, and whose time does not matter


class Machine(NamedTuple):
    """What passes of a model cost somewhere."""

    curve: PassCurve = FREE  # what a pass takes by its rows
    shares: tuple[float, float] = 1.0, 1.0  # times what the curve says passes take more than plain ones: least and most
    weights: float | None = None  # bytes that a plain pass reads
    noise: float = 0.0  # of the time that a text takes, as a share of it
    row: ChipCosts | None = None  # what was published of a chip
    chip: str = ""  # its name, by `chip_of`
    costs: PassCosts | None = None  # what was measured here
    plain: float | None = None  # seconds of a plain pass here, after a short context
    draft: tuple[DraftCost, DraftCost] = NO_COST, NO_COST  # of a draft model: least and most

    def not_known(self, size: float | None) -> Iterator[str]:
        """What may differ from the measurement, in words."""
        if self.row and self.row.scope == "matrix":
            yield "model: one matrix was measured; what the rest of a pass costs depends on size and context"
        elif depths := self.row.curves if self.row else self.costs and self.costs.seconds:
            yield f"context: measured after {max(depths):,} tokens; after more, passes over more rows cost more"
        if self.row and self.row.parameters and not size:
            yield "size: give yours with --size, which leaves out measurements of far other sizes"
        elif self.row and self.row.parameters and size and not _near(size, self.row):
            yield f"size: measured with {self.row.parameters:g} billion weights, not {size:g}"

    def draft_costs(self, draft: Any, name: str) -> tuple[DraftCost, DraftCost]:
        """The least and the most that a draft model, which the user calls ``name``, may cost, in plain passes.

        Raises:
            SpectoolError: It was not measured on this machine, or nothing is known of the chip or of the target's size.
        """
        if self.costs is None:
            if self.weights is None:
                raise SpectoolError("what a draft model costs depends on the size of yours: give it with --size")
            return cost_range(self.chip, weight_bytes(draft), self.weights)
        more = f"{shlex.quote(self.costs.model)} --draft-model {shlex.quote(name)}"
        cost = measured_draft_cost(_measured(draft, name, more), self.costs)
        low, high = (cost._replace(token=share * cost.token, reading=share * cost.reading) for share in _MEASURED)
        return low, high

    def token_costs(self, weights: float, layers: int) -> tuple[float, float]:
        """Plain passes that a token of a draft model may cost which is not here, by its bytes and layers."""
        assert self.weights is not None
        if self.plain is None:
            low, high = cost_range(self.chip, weights, self.weights)
            return low.token, high.token
        share, layer = weights / self.weights, layers * seconds_of_a_layer() / self.plain
        return share + _LAYERS[0] * layer, share + _LAYERS[1] * layer


@cache
def seconds_of_a_layer() -> float:
    """What a layer of a small model takes on this machine, by a few passes of the bundled demo model."""
    model, _ = load_model(str(demo_path("target")))
    passes = Passes(model, min(DEPTHS))
    return min(passes.run_plain() for _ in range(_SMALL_PASSES)) / len(model.layers)


def _measured(model: Any, name: str, command: str) -> PassCosts:
    """What `spectool doctor` has measured of a model here; ``command`` is what to give it as --model."""
    costs = known_costs(model)
    if costs is None or not costs.whole:
        raise SpectoolError(f"{name} was not measured on {machine_name()}. Run: spectool doctor --model {command}")
    return costs


def machine_here(model: Any, name: str) -> Machine:
    """What `spectool doctor` has measured on this machine of an MLX model that the user calls ``name``.

    Raises:
        SpectoolError: It has not.
    """
    costs = _measured(model, name, shlex.quote(name))
    curve = PassCurve(costs.seconds, costs.plain, costs.final)
    costs, plain = replace(costs, model=name), costs.plain[min(costs.plain)]
    noise = APART if costs.final else DISTURBED
    return Machine(curve, _MEASURED, weight_bytes(model), noise, costs=costs, plain=plain)


def machines_for(model: Any) -> list[Machine]:
    """What passes of an MLX model cost on this machine, as `spectool doctor` has measured it or others its chip.

    Raises:
        SpectoolError: Nobody has.
    """
    costs = known_costs(model)
    if (costs is not None and costs.whole) or not chip_of(chip := chip_name()):
        return [machine_here(model, "MODEL")]
    bits, mode, _ = weights_form(model)
    return list(machines_on(chip, bits, mode, get_total_parameters(model) / 1e9).values())


def machines_on(chip: str, bits: int, mode: str, size: float | None = None) -> dict[str, Machine]:
    """What was published of passes on a chip, or on those of its generation, by source.

    Of a model of that ``size``, in billions of weights: other sizes are left out where there is anything else, and one
    matrix where a whole model was measured after a short context.

    Raises:
        SpectoolError: Nothing was.
    """
    if not (name := chip_of(chip)):
        raise SpectoolError(f"--on: expected a chip of Apple's, such as M2 or 'M4 Pro', got {chip!r}")
    known, form = rows_for(name), form_of(bits, mode)
    rows = [row for row in known if row.form == form]
    if not rows:
        raise SpectoolError(
            f"nobody has published what passes of {form} weights cost on {name} or its generation, so no figure is "
            f"guessed. Published of its generation: {', '.join(dict.fromkeys(row.form for row in known)) or 'none'}. "
            "`spectool doctor` measures your own machine"
        )
    if size is not None:
        rows = [row for row in rows if row.parameters is None or _near(size, row)] or rows
        if any(_near(size, row) and min(row.curves) <= _SHORT for row in rows):
            rows = [row for row in rows if row.scope != "matrix"]
    found = {}
    for row in rows:
        billions = size or row.parameters
        weights = billions and billions * 1e9 / 8 * read_bits(bits, mode)
        found[row.title] = Machine(row.curve, _PUBLISHED[row.scope], weights, row=row, chip=name)
    return found


def _near(size: float, row: ChipCosts) -> bool:
    return row.parameters is not None and 1 / _FAR <= size / row.parameters <= _FAR


def weights_form(model: Any) -> tuple[int, Any, int | None]:
    """Bits, mode and group of most of a model's weights."""
    quantised = (each for each in model.modules() if hasattr(each, "bits") and hasattr(each, "group_size"))
    if found := Counter((each.bits, getattr(each, "mode", "affine"), each.group_size) for each in quantised):
        return found.most_common(1)[0][0]
    weights: Any = tree_flatten(model.parameters())
    return 8 * max(weights, key=lambda each: each[1].size)[1].itemsize, "none", None


def has_experts(model: Any) -> bool:
    """Whether a model is a mixture of experts, of which a pass reads some."""
    return any("experts" in name or "switch_mlp" in name for name, _ in model.named_modules())


def chip_name() -> str:
    """The chip of this machine, as the table names it; its processor where it is no Mac."""
    info: dict[str, Any] = mx.device_info()
    name = str(info.get("device_name", platform.processor() or platform.machine()))
    return chip_of(name) or name


def cheaper_here(model: Any, costs: PassCosts) -> list[str]:
    """A sentence, or none, on what would make drafts for a model cheaper on this machine.

    That is another BLAS, or MX weights of as many bits: their plain passes read no more, so the model writes faster.
    """
    if advice := blas_advice(model):
        return [advice]
    bits, mode, _ = weights_form(model)
    chip, curve = chip_name(), PassCurve(costs.seconds, costs.plain, costs.final)
    other = next((row for row in rows_for(chip) if row.form == f"mxfp{bits}"), None)
    if other is None or mode != "affine" or has_experts(model):  # of which hardly anything was published
        return []
    now, then = (each.costs(_ROWS - 1, 0)[-1] for each in (curve, other.curve))
    if then >= _CHEAPER * now:
        return []
    return [
        f"Drafts cost less with {other.form} weights: on {' and '.join(other.chips)}, a pass over {_ROWS} tokens takes "
        f"{then:.2g} plain passes, not {now:.2g} ({other.source}). To see what drafts gain then: spectool predict "
        f"--dict FILE --on {shlex.quote(chip)} --bits {bits} --mode {other.mode}. To convert the original, which is "
        f"not quantised: mlx_lm.convert --hf-path ORIGINAL -q --q-bits {bits} --q-mode {other.mode} --mlx-path NEW"
    ]


def row_to_share(model: Any, costs: PassCosts) -> ChipCosts:
    """What was measured of a model here, in plain passes.

    Raises:
        SpectoolError: There was time for passes over single tokens alone.
    """
    curves = {
        depth: {rows: round(seconds / curve[1], 3) for rows, seconds in curve.items()}
        for depth, curve in costs.seconds.items()
        if len(curve) > 1
    }
    if not curves:
        raise SpectoolError("there was time for passes over single tokens alone. Measure longer: --seconds 60")
    bits, mode, group = weights_form(model)
    return ChipCosts(
        chips=(chip_name(),),
        bits=bits,
        mode=mode,
        group=group,
        scope="pass",
        curves=curves,
        source="spectool doctor --share",
        seen=f"{date.today():%Y-%m}",
        parameters=max(0.001, round(get_total_parameters(model) / 1e9, 3)),
        experts=has_experts(model),
        about={
            "mlx": version("mlx"),
            "architecture": type(model).__module__.rpartition(".")[2],
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "plain_ms": round(1e3 * costs.plain[min(costs.plain)], 2),
        },
    )
