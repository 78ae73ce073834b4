"""What can be taken back, for every kind of cache that mlx-lm has for one sequence."""

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
from spectool.runtime import caches


def fed(cache: Any, count: int) -> Any:
    """Return ``cache`` after ``count`` more tokens."""
    for leaf in caches.leaves([cache]):
        entry = mx.zeros((1, 1, count, 32))
        leaf.update_and_fetch(entry, entry)
    return cache


@pytest.mark.parametrize(
    "cache",
    [KVCache(), QuantizedKVCache(32), ChunkedKVCache(64), CacheList(KVCache(), CacheList(KVCache()))],
    ids=lambda cache: type(cache).__name__,
)
def test_growing_caches(cache: Any) -> None:
    caches.require_trimmable([cache], object())
    assert caches.room([cache]) == caches.UNLIMITED
    before = caches.offsets([cache])
    fed(cache, 10)
    caches.trim([cache], 4)
    assert set(caches.offsets([cache])) == {6}
    assert caches.rewind([cache], before, 2)
    assert set(caches.offsets([cache])) == {2}


def test_trimming_more_than_there_is_says_so_for_any_layer() -> None:
    cache = [fed(KVCache(), 10), fed(KVCache(), 3)]
    # The reason for checking: mlx-lm reports the first layer's count.
    assert trim_prompt_cache([fed(KVCache(), 10), fed(KVCache(), 3)], 5) == 5
    with pytest.raises(RuntimeUnsupported, match="expected to trim 5 tokens, trimmed 3"):
        caches.trim(cache, 5)


def test_a_window_has_room_until_it_is_full() -> None:
    window = RotatingKVCache(max_size=16)
    assert caches.room([KVCache(), window]) == 15
    for count, left in ((10, 5), (5, 0)):
        fed(window, count)
        assert caches.room([CacheList(KVCache(), window)]) == left
        assert window.is_trimmable()
    fed(window, 1)
    assert not window.is_trimmable()
    assert caches.room([window]) == 0
    with pytest.raises(RuntimeUnsupported, match="expected to trim 1 tokens, trimmed 0"):
        caches.trim([window], 1)


def test_recurrent_state_is_named() -> None:
    class Model:
        model_type = "jamba"

    with pytest.raises(RuntimeUnsupported, match=r"jamba: .* got ArraysCache, RotatingKVCache\."):
        cache = [KVCache(), CacheList(ArraysCache(2)), fed(RotatingKVCache(max_size=4), 4)]
        caches.require_trimmable(cache, Model())


def test_rewinding_layers_that_disagree() -> None:
    cache = [fed(KVCache(), 9), fed(KVCache(), 5), ArraysCache(2)]
    assert caches.rewind(cache, [2, 2, None], 3)
    assert caches.offsets(cache) == [5, 5, None]
    assert not caches.rewind(cache, [2, 2, None], 4), "a cache cannot be taken forward"


def test_rewinding_a_full_window_leaves_it() -> None:
    window = fed(RotatingKVCache(max_size=4), 6)
    assert not caches.rewind([window], [0], 5)
    assert window.offset == 6
