"""What a prompt cache holds, compared layer by layer with one that was fed the same tokens at once."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, ChunkedKVCache, RotatingKVCache, make_prompt_cache

from spectool.runtime.caches.leaves import flatten, is_unused, lengths


def content(leaf: Any) -> list[mx.array]:
    """Return what later tokens can see of a cache: of a window, what the next token sees."""
    if isinstance(leaf, ArraysCache):
        return [array for array in leaf.cache if array is not None]
    if isinstance(leaf, RotatingKVCache) and leaf.keys is not None:
        seen = min(leaf.offset, leaf.max_size - 1)
        return [leaf._temporal_order(array)[..., -seen:, :] for array in (leaf.keys, leaf.values)]
    if isinstance(leaf, ChunkedKVCache) and leaf.keys is not None:
        return [array[..., -leaf.chunk_size :, :] for array in leaf.keys_and_values()]
    return [] if leaf.keys is None else list(leaf.keys_and_values())


def assert_holds(model: Any, cache: Sequence[Any], tokens: Sequence[int]) -> None:
    """Compare every layer with that of a cache that was fed ``tokens`` at once."""
    fresh = make_prompt_cache(model)
    if tokens:
        mx.eval(model(mx.array([list(tokens)]), cache=fresh))
    for number, (is_, should) in enumerate(zip(flatten(cache), flatten(fresh), strict=True)):
        held = set() if is_unused(should) else lengths([is_])
        assert getattr(is_, "offset", None) == getattr(should, "offset", None), f"leaf {number}"
        assert held <= {len(tokens)}, f"leaf {number}"
        assert "make_mask" not in vars(is_)
        for got, expected in zip(content(is_), content(should), strict=True):
            assert mx.allclose(got, expected, atol=1e-4), f"leaf {number}"
