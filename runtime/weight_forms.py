"""The forms of a model's weights: as they are, float32 or bfloat16, or quantised to 8 or 4 bits."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from spectool import RuntimeUnsupported

TYPES = {32: mx.float32, 16: mx.bfloat16}
FORMS = (*TYPES, 8, 4)
"""Bits of a weight: float32, bfloat16, or quantised in groups of `GROUP`, of which each has a scale and a bias."""
GROUP = 64  # weights, as in mlx-lm


def quantised(model: Any) -> bool:
    """Whether some weights of a model are quantised."""
    return any(hasattr(module, "bits") for module in model.modules())


def convert(model: Any, bits: int) -> None:
    """Give a model one of the `FORMS`, in place; RuntimeUnsupported if it is quantised already, or no matrix can be.

    Quantised matrices keep the type of their scales, and what has no rows of whole groups stays as it is.
    """
    if quantised(model):
        raise RuntimeUnsupported("this model is quantised already. Leave --bits out, or take the original")
    if bits in TYPES:
        model.set_dtype(TYPES[bits])
        return
    by_model = getattr(model, "quant_predicate", None)

    def whole_groups(path: str, module: Any) -> Any:
        fits = hasattr(module, "to_quantized") and module.weight.shape[-1] % GROUP == 0
        return fits and (by_model is None or by_model(path, module))

    nn.quantize(model, GROUP, bits, class_predicate=whole_groups)  # type: ignore[attr-defined]
    if not quantised(model):
        raise RuntimeUnsupported(f"no matrix of this model has rows of whole groups of {GROUP} weights. Give --bits 16")


def save_weights(model: Any, bits: int, directory: Path) -> int:
    """Replace the weights in a model's directory by those of a `convert`-ed model; return the bytes of all tensors."""
    weights: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    mx.eval(weights)
    for file in (*directory.glob("model*.safetensors"), *directory.glob("model*.safetensors.index.json")):
        file.unlink()
    mx.save_safetensors(str(directory / "model.safetensors"), weights, {"format": "mlx"})
    path = directory / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    if bits in TYPES:
        config["torch_dtype"] = str(TYPES[bits]).removeprefix("mlx.core.")
    else:
        config["quantization"] = config["quantization_config"] = {"group_size": GROUP, "bits": bits, "mode": "affine"}
    path.write_text(json.dumps(config, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return sum(weight.nbytes for weight in weights.values())
