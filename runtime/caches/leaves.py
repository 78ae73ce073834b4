"""The parts of a prompt cache, whether it is fit for a model, how many tokens each part holds, and cutting some off.

mlx-lm trims all layers but reports the count of the first only, and it asks a cache whether it can be trimmed but not
by how much. The functions here look at every single cache, also inside ``CacheList``.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from spectool import RuntimeUnsupported
from spectool.runtime.mlx_lm_compat import (
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
    maybe_quantize_kv_cache,
    windows,
)
from spectool.runtime.per_model import once_per_model

# What stands in for a cache without a window: with `max_kv_size`, or once it is quantised.
_INSTEAD = (RotatingKVCache, QuantizedKVCache)


def flatten(cache: Sequence[Any]) -> list[Any]:
    """The caches that hold arrays (leaves), in order: ``CacheList`` members one by one."""
    found: list[Any] = []
    for entry in cache:
        members = getattr(entry, "caches", None)
        found += [entry] if members is None else flatten(members)
    return found


def require_cache_of(model: Any, cache: Sequence[Any]) -> None:
    """Raise `RuntimeUnsupported` if ``cache`` has not the entries or heads of ``model``, so is another model's."""
    if not hasattr(model, "make_cache") and not hasattr(model, "layers"):
        return  # something that is called like a model and makes no cache
    expected, found = flatten(make_prompt_cache(model)), flatten(cache)
    wrong = [(_in_words(expected), _in_words(found))]
    if len(expected) == len(found) and all(
        isinstance(leaf, type(own)) or (type(own) is KVCache and isinstance(leaf, _INSTEAD))
        for own, leaf in zip(expected, found, strict=True)
    ):
        heads = list(map(_heads, found))
        both = zip(_heads_of(model), heads, strict=False) if any(heads) else ()
        wrong = [(f"with heads × sizes of {own}", other) for own, other in both if own and other and own != other]
    if wrong:
        raise RuntimeUnsupported(
            f"prompt_cache: expected a cache of this model, {wrong[0][0]}, got {wrong[0][1]}. "
            "Make one with make_prompt_cache(model)"
        )


@once_per_model
def _heads_of(model: Any) -> list[str]:
    """The heads of a model's caches, from a pass that is built and not computed; none if that fails."""
    cache = make_prompt_cache(model)
    try:
        model(mx.zeros((1, 1), dtype=mx.int32), cache=cache)
    except Exception:  # the generation itself will say why
        return []
    return list(map(_heads, flatten(cache)))


def _heads(leaf: Any) -> str:
    """Numbers and sizes of the heads of keys and values; empty where ``leaf`` holds none, or quantised ones."""
    arrays = [getattr(leaf, name, None) for name in ("keys", "values")]
    return " and ".join(f"{each.shape[1]} × {each.shape[-1]}" for each in arrays if isinstance(each, mx.array))


def require_quantizable(cache: Sequence[Any], model: Any, bits: int, group_size: int) -> None:
    """Raise `RuntimeUnsupported` if ``cache`` cannot be quantised, or ``model`` cannot read it then.

    mlx-lm fails halfway with windows and with models that attend to their keys and values by themselves, such as those
    of DeepSeek, and leaves unquantised what it has no form for. Nothing is computed.
    """
    without = [entry for entry in cache if hasattr(entry, "to_quantized") and hasattr(entry, "max_size")]
    if not any(hasattr(entry, "to_quantized") or hasattr(entry, "bits") for entry in cache):
        without = list(cache)
    problem = ""
    if without:
        problem = f"expected caches with a quantised form, got {_in_words(without)}"
    elif reason := _reason_against(model, bits, group_size):
        problem = f"cannot read a cache of {bits} bits in groups of {group_size} ({reason})"
    if problem:
        kind = getattr(model, "model_type", None) or type(model).__name__
        raise RuntimeUnsupported(f"kv_bits: model type {kind}: {problem}. Leave it out")


@once_per_model
def _reason_against(model: Any, bits: int, group_size: int) -> str:
    """Why the model cannot read a cache that is quantised like that; empty where it can. Two passes are built."""
    cache = make_prompt_cache(model)
    try:
        model(mx.zeros((1, 1), dtype=mx.int32), cache=cache)
        arrays = [array for entry in cache if hasattr(entry, "to_quantized") for array in (entry.keys, entry.values)]
        sizes = sorted({array.shape[-1] for array in arrays if array is not None})
        if any(size % group_size for size in sizes):  # MLX ends the process where it is 0
            return f"its heads have {' and '.join(map(str, sizes))} numbers"
        maybe_quantize_kv_cache(cache, 0, group_size, bits)
        model(mx.zeros((1, 2), dtype=mx.int32), cache=cache)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return ""


def _in_words(leaves: Sequence[Any]) -> str:
    counts = Counter(type(leaf).__name__ for leaf in leaves)
    return " and ".join(f"{count} {name}" for name, count in counts.items()) or "no entries"


def is_unused(leaf: Any) -> bool:
    """Whether nothing has been written to ``leaf``, as in a layer of Nemotron-NAS that has no attention."""
    return getattr(leaf, "keys", leaf) is None


def lengths(cache: Sequence[Any]) -> set[int]:
    """How many tokens the leaves hold that count them: one number, where they agree; unused ones count if all are."""
    counting = [leaf for leaf in flatten(cache) if isinstance(getattr(leaf, "offset", None), int)]
    return {leaf.offset for leaf in [leaf for leaf in counting if not is_unused(leaf)] or counting}


def trim(leaf: Any, count: int) -> None:
    """Cut the last ``count`` tokens off ``leaf``.

    Raises:
        RuntimeUnsupported: It gave up fewer tokens than asked, and cannot be used any more.
    """
    if count <= 0:
        return
    if isinstance(leaf, windows.WINDOWS):
        windows.trim_window(leaf, count)
        return
    trimmed = leaf.trim(count)
    if trimmed != count:
        raise RuntimeUnsupported(
            f"{type(leaf).__name__}: expected to trim {count} tokens, trimmed {trimmed}. "
            "Generate without a drafter, with a fresh prompt cache."
        )
