"""Rotating caches against a list of all tokens: what each query sees after any feeding and trimming."""

import copy
import random
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import ChunkedKVCache, RotatingKVCache

from spectool import RuntimeUnsupported
from spectool.runtime.caches.shared import BatchCache
from spectool.runtime.mlx_lm_compat import windows

MULTI = 6  # tokens fed at once, at most


def feed(window: Any, first: int, count: int, asked: int | None = None) -> list[list[int]]:
    """Feed tokens ``first``, ``first`` + 1 ...; return what each of them sees, itself included.

    The model has ``asked`` for a window of this size.
    """
    mask = window.make_mask(count, window_size=asked)
    tokens = mx.arange(first, first + count, dtype=mx.float32)[None, None, :, None]
    keys, values = window.update_and_fetch(tokens, -tokens)
    assert mx.array_equal(keys, -values)
    held = np.array(keys[0, 0, :, 0]).astype(int)
    if count == 1:
        return [sorted(held.tolist())]
    if isinstance(mask, str):
        mask = mx.arange(len(held))[None] <= mx.arange(len(held) - count, len(held))[:, None]
    return [sorted(held[row].tolist()) for row in np.array(mask)]


def seen_by(token: int, size: int, keep: int) -> list[int]:
    """What a token sees when all are fed one by one."""
    return [other for other in range(token + 1) if other < keep or other > token - (size - keep)]


@pytest.mark.parametrize("keep", [0, 4])
@pytest.mark.parametrize("size", [7, 12])
@pytest.mark.parametrize("more", [None, 0, 1])
@pytest.mark.parametrize("seed", range(2))
def test_every_token_sees_what_it_would_see_fed_one_by_one(size: int, keep: int, more: int | None, seed: int) -> None:
    """Also where a model asks for ``more`` than the cache holds, as PLaMo 3 does."""
    rng = random.Random(seed)
    window = RotatingKVCache(max_size=size, keep=keep)
    windows.use_masks([window], exact=True)
    held, wraps = 0, 0
    for _ in range(120):
        count = rng.choice([1, 1, 2, 3, MULTI])
        asked = None if more is None else size + more
        assert feed(window, held, count, asked) == [seen_by(held + row, size, keep) for row in range(count)]
        held += count
        # Any part of what the latest pass fed, down to nothing.
        back = rng.choice([0, 0, 1, count, rng.randint(0, count)])
        assert back == count or back <= windows.trimmable(window)
        windows.trim_window(window, back)
        held -= back
        wraps += held > size
        assert window.offset == held
    assert wraps > 20
    windows.use_masks([window], exact=False)
    assert "make_mask" not in vars(window)


def test_the_host_masks_the_first_tokens_that_a_window_keeps() -> None:
    # The reason for masks of our own; without `keep` the host's are right.
    for keep, right in ((0, True), (4, False)):
        window = RotatingKVCache(max_size=8, keep=keep)
        for token in range(20):
            feed(window, token, 1)
        seen = feed(copy.deepcopy(window), 20, 3)
        assert (seen == [seen_by(20 + row, 8, keep) for row in range(3)]) is right
        windows.use_masks([window], exact=True)
        assert feed(window, 20, 3) == [seen_by(20 + row, 8, keep) for row in range(3)]


def test_what_single_tokens_see_by_accident_is_refused() -> None:
    # A model with a window of 8 tokens, and a cache of 12 that keeps its first tokens.
    window = RotatingKVCache(max_size=12, keep=4)
    windows.use_masks([window], exact=True)
    for token in range(20):
        feed(window, token, 1, asked=8)
    with pytest.raises(RuntimeUnsupported, match="own window has 8 tokens"):
        window.make_mask(2, window_size=8)
    rows = BatchCache([window], 3)
    rows.lengths = [1, 2]
    rows.begin([1, 1])
    with pytest.raises(RuntimeUnsupported, match="own window has 8 tokens"):
        rows.entries[0].make_mask(1, window_size=8)


def test_what_a_window_can_give_up() -> None:
    window = RotatingKVCache(max_size=8)
    assert windows.trimmable(window) == 0
    assert windows.keeps_all(window, 8)
    assert not windows.keeps_all(window, 9)
    feed(window, 0, 5)
    assert windows.trimmable(window) == 5
    feed(window, 5, 5)
    # Ten tokens in order: nothing has been dropped yet, and the next token will drop some.
    assert (windows.trimmable(window), window.is_trimmable()) == (10, False)
    assert not windows.keeps_all(window)
    feed(window, 10, 1)
    assert windows.trimmable(window) == 0
    feed(window, 11, 4)
    # Seven before the pass and the four of it; eight must stay for the window to be full.
    assert windows.trimmable(window) == 3


def test_what_a_chunk_can_give_up() -> None:
    chunk = ChunkedKVCache(8)
    for count, most in ((5, 5), (5, 10), (1, 1), (4, 4)):  # the third pass drops what exceeds eight tokens
        chunk.maybe_trim_front()
        chunk.update_and_fetch(*[mx.zeros((1, 1, count, 1))] * 2)
        assert windows.trimmable(chunk) == most
        assert windows.keeps_all(chunk, 2) is (chunk.offset == 5)
    windows.trim_window(chunk, 4)
    assert windows.trimmable(chunk) == 0
