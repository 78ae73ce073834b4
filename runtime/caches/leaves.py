"""The parts of a prompt cache, how many tokens each one holds, and cutting tokens off its end.

mlx-lm trims all layers but reports the count of the first only, and it asks a cache whether it can be trimmed but not
by how much. The functions here look at every single cache, also inside ``CacheList``.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from spectool import RuntimeUnsupported
from spectool.runtime.mlx_lm_compat import KVCache, QuantizedKVCache, RotatingKVCache, make_prompt_cache, windows
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
    fits = len(expected) == len(found) and all(
        isinstance(leaf, type(own)) or (type(own) is KVCache and isinstance(leaf, _INSTEAD))
        for own, leaf in zip(expected, found, strict=True)
    )
    if not fits:
        raise RuntimeUnsupported(
            f"prompt_cache: expected a cache of this model, {_in_words(expected)}, got {_in_words(found)}. "
            "Make one with make_prompt_cache(model)"
        )
    if any(_heads(leaf) for leaf in found):
        for own, leaf in zip(_heads_of(model), map(_heads, found), strict=False):
            if own and leaf and own != leaf:
                raise RuntimeUnsupported(
                    f"prompt_cache: expected a cache of this model, with keys and values of {own} (heads × size), got "
                    f"{leaf}. Make one with make_prompt_cache(model)"
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


def _in_words(leaves: Sequence[Any]) -> str:
    counts = Counter(type(leaf).__name__ for leaf in leaves)
    return " and ".join(f"{count} {name}" for name, count in counts.items()) or "no entries"


def offsets(cache: Sequence[Any]) -> list[int | None]:
    """The position of every leaf, in tokens; None for caches that do not count them."""
    positions = [getattr(leaf, "offset", None) for leaf in flatten(cache)]
    return [position if isinstance(position, int) else None for position in positions]


def is_unused(leaf: Any) -> bool:
    """Whether nothing has been written to ``leaf``, as in a layer of Nemotron-NAS that has no attention."""
    return getattr(leaf, "keys", leaf) is None


def lengths(cache: Sequence[Any]) -> set[int]:
    """How many tokens the leaves hold that count them: one number, where they agree; unused ones count if all are."""
    counting = [leaf for leaf in flatten(cache) if isinstance(getattr(leaf, "offset", None), int)]
    return {leaf.offset for leaf in [leaf for leaf in counting if not is_unused(leaf)] or counting}


def can_trim(leaf: Any, count: int) -> bool:
    """Whether the last ``count`` (> 0) tokens can be cut off ``leaf`` without loss."""
    if isinstance(leaf, windows.WINDOWS):
        return count <= windows.trimmable(leaf)
    return bool(leaf.is_trimmable())


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
