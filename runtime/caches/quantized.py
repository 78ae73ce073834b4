"""Whether caches can be quantised: checked before any work."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from spectool import RuntimeUnsupported
from spectool.runtime.mlx_lm_compat import make_prompt_cache, maybe_quantize_kv_cache
from spectool.runtime.per_model import once_per_model
from spectool.runtime.settings import GROUP_SIZES


def require_quantizable(cache: Sequence[Any], model: Any, bits: int = 8, group_size: int = 64) -> None:
    """Raise `RuntimeUnsupported` if ``cache`` cannot be quantised, or ``model`` cannot read it then.

    mlx-lm fails halfway with windows and with models that attend to their keys and values by themselves, such as those
    of DeepSeek, and leaves unquantised what it has no form for. Nothing is computed.
    """
    without = {type(entry).__name__ for entry in cache if hasattr(entry, "to_quantized") and hasattr(entry, "max_size")}
    if not any(hasattr(entry, "to_quantized") or hasattr(entry, "bits") for entry in cache):
        without = {type(entry).__name__ for entry in cache}
    kind = getattr(model, "model_type", None) or type(model).__name__
    if without:
        raise RuntimeUnsupported(
            f"kv_bits: model type {kind}: expected caches with a quantised form, got {', '.join(sorted(without))}. "
            "Leave it out"
        )
    if reason := _reason_against(model, bits, group_size):
        raise RuntimeUnsupported(
            f"kv_bits: model type {kind} cannot read a cache of {bits} bits in groups of {group_size} ({reason}). "
            "Leave it out"
        )


@once_per_model
def _reason_against(model: Any, bits: int, group_size: int) -> str:
    """Why the model cannot read a cache that is quantised like that; empty where it can. Two passes are built."""
    cache = make_prompt_cache(model)
    try:
        model(mx.zeros((1, 1), dtype=mx.int32), cache=cache)
        arrays = [array for entry in cache if hasattr(entry, "to_quantized") for array in (entry.keys, entry.values)]
        sizes = sorted({array.shape[-1] for array in arrays if array is not None})
        if any(size % group_size for size in sizes):
            fitting = [f"; {group} would fit" for group in GROUP_SIZES if not any(size % group for size in sizes)]
            return f"its heads have {' and '.join(map(str, sizes))} numbers{''.join(fitting[-1:])}"
        maybe_quantize_kv_cache(cache, 0, group_size, bits)
        model(mx.zeros((1, 2), dtype=mx.int32), cache=cache)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return ""
