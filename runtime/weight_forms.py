"""The forms of a model's weights: as they are, float32 or bfloat16, or quantised to 8 or 4 bits."""

import json
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from spectool import RuntimeUnsupported
from spectool.runtime.mlx_lm_compat import quantize_model

TYPES = {32: mx.float32, 16: mx.bfloat16}
FORMS = (*TYPES, 8, 4)
"""Bits of a weight: float32, bfloat16, or quantised in groups of `GROUP`, of which each has a scale and a bias."""
GROUP = 64  # weights, as in mlx-lm


def quantised(model: Any) -> bool:
    """Whether some weights of a model are quantised."""
    return any(hasattr(module, "bits") for module in model.modules())


def convert(model: Any, bits: int) -> dict[str, Any]:
    """Give a model one of the `FORMS`, in place; return what its config.json has to say about it.

    Quantised matrices keep the type of their scales, and what has no rows of whole groups stays as it is.

    Raises:
        RuntimeUnsupported: The model is quantised already, or no matrix can be.
    """
    if quantised(model):
        raise RuntimeUnsupported("this model is quantised already. Leave --bits out, or take the original")
    if bits in TYPES:
        model.set_dtype(TYPES[bits])
        return {"torch_dtype": str(TYPES[bits]).removeprefix("mlx.core.")}
    with redirect_stdout(None):  # to which it says how many bits a weight has
        _, config = quantize_model(model, {}, GROUP, bits)
    if not quantised(model):
        raise RuntimeUnsupported(f"no matrix of this model has rows of whole groups of {GROUP} weights. Give --bits 16")
    return dict(config)


def save_weights(model: Any, form: Mapping[str, Any], directory: Path) -> int:
    """Replace the weights in a model's directory, and the ``form`` in its config.json; return the bytes of all tensors.

    The form is what `convert` returned.
    """
    weights: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    mx.eval(weights)
    for file in (*directory.glob("model*.safetensors"), *directory.glob("model*.safetensors.index.json")):
        file.unlink()
    mx.save_safetensors(str(directory / "model.safetensors"), weights, {"format": "mlx"})
    path = directory / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | form
    path.write_text(json.dumps(config, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return sum(weight.nbytes for weight in weights.values())
