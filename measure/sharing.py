"""What was measured on this machine: advice on what would make drafts cheaper, and a row to share with others."""

import os
import platform
from collections import Counter
from datetime import date
from importlib.metadata import version
from itertools import accumulate
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from spectool import SpectoolError
from spectool.measure.chips import ChipCosts, cheaper_weight_formats, chip_of
from spectool.runtime.machine import blas_advice
from spectool.runtime.mlx_lm_compat import get_total_parameters
from spectool.runtime.policy.curve import PassCurve
from spectool.runtime.policy.pass_costs import PassCosts


def weights_form(model: Any) -> tuple[int, Any, int | None]:
    """Bits, mode and group of most of a model's weights."""
    found: Counter[tuple[int, str, int | None]] = Counter()
    for module in model.modules():
        if hasattr(module, "bits") and hasattr(module, "group_size"):
            found[module.bits, getattr(module, "mode", "affine"), module.group_size] += 1
    if found:
        return found.most_common(1)[0][0]
    weights: Any = tree_flatten(model.parameters())
    return 8 * max(weights, key=lambda each: each[1].size)[1].itemsize, "none", None


def chip_name() -> str:
    """The chip of this machine, as the table names it; its processor where it is no Mac."""
    info: dict[str, Any] = mx.device_info()
    name = str(info.get("device_name", platform.processor() or platform.machine()))
    return chip_of(name) or name


def cheaper_here(model: Any, costs: PassCosts) -> list[str]:
    """Sentences on what would make drafts for a model cheaper on this machine: another BLAS, or form of its weights."""
    bits, mode, _ = weights_form(model)
    if advice := blas_advice(model):
        return [advice]
    return cheaper_weight_formats(chip_name(), bits, mode, PassCurve(costs.seconds, costs.plain))


def row_to_share(model: Any, costs: PassCosts) -> ChipCosts:
    """What was measured of a model here, in plain passes; no size is quicker than a smaller one.

    Raises:
        SpectoolError: There was time for passes over single tokens alone.
    """
    curves: dict[int, dict[int, float]] = {}
    for depth, curve in costs.seconds.items():
        rising = accumulate((seconds / curve[1] for _, seconds in sorted(curve.items())), max)
        if len(curve) > 1:
            curves[depth] = dict(zip(sorted(curve), (round(each, 3) for each in rising), strict=True))
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
        experts=any("experts" in name or "switch_mlp" in name for name, _ in model.named_modules()),
        about={
            "mlx": version("mlx"),
            "architecture": type(model).__module__.rpartition(".")[2],
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "plain_ms": round(1e3 * costs.plain[min(costs.plain)], 2),
        },
    )
