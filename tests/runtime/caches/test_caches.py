"""What can be cut off, for every kind of cache that mlx-lm has for one sequence."""

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    trim_prompt_cache,
)

from spectool import RuntimeUnsupported
from spectool.runtime.caches.leaves import can_trim, flatten, offsets, trim


def fed(cache: Any, count: int) -> Any:
    """Return ``cache`` after ``count`` more tokens."""
    for leaf in flatten([cache]):
        entry = mx.zeros((1, 1, count, 32))
        leaf.update_and_fetch(entry, entry)
    return cache


@pytest.mark.parametrize(
    "cache",
    [KVCache(), QuantizedKVCache(32), ChunkedKVCache(64), CacheList(KVCache(), CacheList(KVCache()))],
    ids=lambda cache: type(cache).__name__,
)
def test_growing_caches(cache: Any) -> None:
    fed(cache, 10)
    for leaf in flatten([cache]):
        assert can_trim(leaf, 10)
        trim(leaf, 4)
    assert set(offsets([cache])) == {6}


def test_trimming_more_than_there_is_says_so() -> None:
    # The reason for leaf by leaf: mlx-lm reports the first layer's count.
    assert trim_prompt_cache([fed(KVCache(), 10), fed(KVCache(), 3)], 5) == 5
    with pytest.raises(RuntimeUnsupported, match="expected to trim 5 tokens, trimmed 3"):
        trim(fed(KVCache(), 3), 5)


def test_a_full_window_gives_up_what_came_in_one_pass() -> None:
    window = fed(RotatingKVCache(max_size=16), 20)
    for _ in range(3):
        fed(window, 1)
    assert not can_trim(window, 1)
    fed(window, 5)
    assert can_trim(window, 4)
    trim(window, 4)
    assert offsets([CacheList(KVCache(), window)]) == [0, 24]


def test_recurrent_states_have_no_length_and_give_up_nothing() -> None:
    assert offsets([ArraysCache(2)]) == [None]
    assert not can_trim(ArraysCache(2), 1)
