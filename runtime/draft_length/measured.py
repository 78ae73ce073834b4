"""What `spectool doctor` knows of a model: where controllers start from.

Costs depend on the shapes and types of the weights, on the machine, and on the version of MLX, but not on the values of
the weights. So the key of a measurement is made of these, and a model has the same key wherever it lies.
"""

import ctypes
import hashlib
import os
import platform
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from spectool import ArtifactError
from spectool.artifacts.pass_costs import DraftFacts, PassCosts, load_costs, save_costs


def machine_name() -> str:
    """Device, processors, BLAS library and version of MLX, in a line."""
    device = mx.default_device()
    if device.type == mx.DeviceType.cpu:
        blas = "preloaded BLAS" if hasattr(ctypes.CDLL(None), "cblas_sgemm") else "BLAS of MLX"
        name = f"CPU, {os.cpu_count()} cores, {blas}"
    else:
        info: dict[str, Any] = mx.device_info()
        name = str(info.get("device_name", device))
    return f"{name}, {platform.system()} {platform.machine()}, mlx {version('mlx')}"


def model_key(model: Any) -> str:
    """A digest of an MLX model's class, its weights' shapes and types, and the machine: what its costs depend on."""
    weights: Any = tree_flatten(model.parameters())
    shapes = [(name, tuple(weight.shape), str(weight.dtype)) for name, weight in weights]
    described = repr((type(model).__module__, type(model).__name__, shapes, machine_name()))
    return hashlib.sha256(described.encode()).hexdigest()[:24]


def known_costs(model: Any) -> PassCosts | None:
    """What the doctor has measured of a model on this machine; None if nothing, or if the file is damaged."""
    with suppress(AttributeError, ArtifactError):  # something that is called like a model; `doctor` names the damage
        return load_costs(model_key(model))
    return None


def known_draft(model: Any, draft: Any, drafter: str) -> DraftFacts | None:
    """What was learnt of a draft model while it drafted for this target as a part of the drafter of this name.

    What a draft model gains depends on what else drafts. So from other drafters, and from the doctor, only its costs
    are taken. None if nothing is known.
    """
    costs, own, key = known_costs(model), known_costs(draft), model_key(draft)
    if costs is not None:
        if (learnt := costs.drafts.get(_learnt_as(key, drafter))) is not None:
            return learnt
        for other, facts in costs.drafts.items():
            if other.startswith(_learnt_as(key, "")):
                return replace(facts, benefit=None)
    if own is None:
        return None
    rows = max(own.curve)
    return DraftFacts(None, 0.0, 0.0, own.curve[1], own.curve[rows] / rows)


def keep_draft(model: Any, draft: Any, drafter: str, facts: DraftFacts) -> None:
    """Keep what was learnt of a draft model as a part of ``drafter``, for a target that the doctor has measured."""
    with suppress(ArtifactError, AttributeError, OSError):  # the next generation learns it again
        if (costs := load_costs(model_key(model))) is not None:
            drafts = costs.drafts | {_learnt_as(model_key(draft), drafter): facts}
            save_costs(model_key(model), replace(costs, drafts=drafts))


def _learnt_as(key: str, drafter: str) -> str:
    return f"{key} in {drafter}"
