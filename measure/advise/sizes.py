"""What a model weighs, from the files of its directory alone; nothing is loaded."""

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from spectool import SpectoolError
from spectool.measure.advise.figures import Figure, computed, measured, stated, unknown

_CACHE_BYTES = 2  # of a number in the cache: float16 or bfloat16


@dataclass(frozen=True)
class Sizes:
    """Bytes of a model in memory."""

    weights: Figure  # all of them, which every pass reads
    cache: Figure  # keys and values of a whole context

    @property
    def total(self) -> Figure:
        """Weights and cache; the weights alone where the cache is not known."""
        if self.weights.value is None:
            return self.weights
        if self.cache.value is None:
            return computed(self.weights.value, f"weights alone; {self.cache.origin}")
        return computed(self.weights.value + self.cache.value, "weights and cache")


def sizes_of(source: str, weights: int | None, context: int) -> Sizes:
    """Return what a model weighs.

    Args:
        source: Directory of the model, its tokenizer alone, or a hub id.
        weights: Bytes that are stated; they win.
        context: Tokens that the cache holds.

    Raises:
        SpectoolError: Its config.json is no JSON.
    """
    path = Path(source).expanduser()
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else []
    if weights is not None:
        found = stated(weights)
    elif files:
        found = measured(sum(file.stat().st_size for file in files), f"files of {path}")
    else:
        found = unknown(f"{source} has no *.safetensors; state its bytes")
    return Sizes(found, _cache(path / "config.json", context))


def is_model(source: str) -> bool:
    """Return whether a model lies there, and not a tokenizer alone."""
    path = Path(source).expanduser()
    return path.is_dir() and (path / "config.json").is_file() and any(path.glob("*.safetensors"))


def _cache(config: Path, context: int) -> Figure:
    """Return the bytes of keys and values as if every layer kept all of the context, in 16 bits."""
    if not config.is_file():
        return unknown("no config.json")
    try:
        read = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpectoolError(
            f"{config}: expected the configuration of a model in JSON, got {error}. Copy the model again"
        ) from error
    text: dict[str, Any] = read.get("text_config", read) if isinstance(read, dict) else {}
    layers, heads = text.get("num_hidden_layers"), text.get("num_attention_heads")
    size = text.get("head_dim") or (text.get("hidden_size", 0) // heads if heads else None)
    shape = [part for part in (layers, text.get("num_key_value_heads") or heads, size) if part]
    if len(shape) < 3 or not all(isinstance(part, int) for part in shape):
        return unknown("config.json does not name layers and heads")
    how = f"{context:,} tokens of 16-bit keys and values in {layers} layers"
    return computed(2 * prod(shape) * _CACHE_BYTES * context, how)
