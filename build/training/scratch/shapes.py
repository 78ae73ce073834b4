"""Shapes of the models that can be trained: sizes by name, a config file, single numbers.

The idea is that a name (``4m``) is enough, and that what it stands for can be changed one number at
a time. A shape is a Llama configuration as mlx-lm reads it, without what the tokenizer decides.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spectool import SpectoolError

CONTEXT = 4096


@dataclass(frozen=True, slots=True)
class Size:
    """A shape by name, with a training step that suits it.

    Attributes:
        hidden: Width of the residual stream.
        layers: Number of layers.
        heads: Attention heads of each.
        intermediate: Width of the feed-forward part.
        rate: Peak learning rate.
        step_tokens: Tokens predicted in a step.
        length: Tokens predicted in a row of it.
    """

    hidden: int
    layers: int
    heads: int
    intermediate: int
    rate: float
    step_tokens: int
    length: int


# Parameters as the names say where some 11,000 ids are common. Rates and steps: 4m was tried, the others follow it.
SIZES: Mapping[str, Size] = {
    "1m": Size(96, 2, 3, 256, 4e-3, 1024, 256),
    "4m": Size(224, 2, 4, 768, 3e-3, 1024, 256),
    "12m": Size(384, 4, 6, 1024, 2e-3, 4096, 256),
    "30m": Size(512, 8, 8, 1408, 1e-3, 16_384, 512),
    "100m": Size(768, 12, 12, 2048, 6e-4, 32_768, 1024),
}
_DEFAULTS: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "max_position_embeddings": CONTEXT,
    "model_type": "llama",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
_DECIDED_BY_THE_TOKENIZER = ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")
_NUMBERS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_REST = ("_name_or_path", "dtype", "quantization", "quantization_config", "torch_dtype", "transformers_version")


def shape_of(size: str, config: Path | None = None, **numbers: int | None) -> dict[str, Any]:
    """Put a shape together.

    Args:
        size: One of `SIZES`; not looked at where there is a ``config``.
        config: A ``config.json`` of a Llama-type model, read instead.
        numbers: Values of the configuration (``hidden_size`` and the like) that replace the shape's; None leaves it.

    Returns:
        A Llama configuration without the vocabulary.

    Raises:
        SpectoolError: The file is not readable or of another type of model, or the numbers do not fit together.
    """
    if config is None:
        named = SIZES[size]
        values = (named.hidden, named.layers, named.heads, named.intermediate)
        shape = {**_DEFAULTS, **dict(zip(_NUMBERS, values, strict=True))}
    else:
        shape = {**_DEFAULTS, **_read(config)}
    shape.update({name: number for name, number in numbers.items() if number is not None})
    _check(shape, str(config or size))
    return shape


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise SpectoolError(f"{path}: not readable as JSON ({error}). Give the config.json of a model") from error
    kind = found.get("model_type") if isinstance(found, dict) else type(found).__name__
    if kind != "llama":
        raise SpectoolError(f"{path}: expected model_type llama, got {kind}. Give another --config, or a --size")
    if missing := [name for name in _NUMBERS if name not in found]:
        raise SpectoolError(f"{path}: expected {', '.join(missing)} in it. Add what is missing, or give a --size")
    return {name: value for name, value in found.items() if name not in (*_DECIDED_BY_THE_TOKENIZER, *_REST)}


def _check(shape: Mapping[str, Any], name: str) -> None:
    hidden, heads = shape["hidden_size"], shape["num_attention_heads"]
    key_heads = shape.get("num_key_value_heads") or heads
    if not all(isinstance(shape[key], int) and shape[key] > 0 for key in _NUMBERS):
        raise SpectoolError(f"{name}: expected whole numbers above 0 for {', '.join(_NUMBERS)}")
    if shape.get("head_dim") is None and (hidden % heads or hidden // heads % 2):
        raise SpectoolError(
            f"{name}: expected a hidden size of an even number for each head, got {hidden} for {heads} heads. "
            f"Give another --hidden or --heads, such as --hidden {max(1, round(hidden / heads / 2)) * 2 * heads}"
        )
    if heads % key_heads:
        raise SpectoolError(f"{name}: expected heads to be a multiple of --kv-heads, got {heads} and {key_heads}")
