"""What each token sees in caches that texts share, against a twin that keeps every text as a list."""

import random
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, RotatingKVCache

from spectool.runtime.caches.shared import BatchCache

WIDTH = 6  # tokens of a row in one pass, at most
KINDS = {"all": lambda: KVCache(), "window": lambda: RotatingKVCache(16), "kept": lambda: RotatingKVCache(16, keep=4)}


def fed(tokens: list[list[int]]) -> tuple[mx.array, mx.array]:
    """Keys and values that say which token they belong to, [rows, 1, tokens, 1]."""
    keys = mx.array(tokens, dtype=mx.float32)[:, None, :, None]
    return keys, keys + 0.5


def single(kind: str, tokens: list[int]) -> Any:
    """The cache of one text, fed token by token."""
    cache = KINDS[kind]()
    for token in tokens:
        cache.update_and_fetch(*fed([[token]]))
    return cache


def visible(kind: str, tokens: list[int], at: int) -> list[int]:
    """What the token at this place sees: all before it and itself, or those in its window and the kept ones."""
    window, keep = {"all": (0, 0), "window": (16, 0), "kept": (16, 4)}[kind]
    if not window:
        return tokens[: at + 1]
    return [token for place, token in enumerate(tokens[: at + 1]) if place < keep or at - place < window - keep]


def seen(keys: mx.array, mask: mx.array, row: int, query: int) -> list[int]:
    """The tokens whose keys a query of a row may look at."""
    allowed = mask[row, 0, query].tolist()
    return sorted(int(key) for key, may in zip(keys[row, 0, :, 0].tolist(), allowed, strict=True) if may)


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_sees_its_own_text(kind: str) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng, fresh = random.Random(seed), iter(range(1, 1 << 20))
    cache, rows = BatchCache([KINDS[kind]()], WIDTH), list[list[int]]()  # the tokens of each
    passes = left = 0
    while passes < 60:
        if not rows or (len(rows) < 5 and rng.random() < 0.3):
            begun = [next(fresh) for _ in range(rng.choice([1, 3, 12, 40]))]
            cache.join([single(kind, begun)], len(begun))
            rows.append(begun)
        counts = [rng.randint(1, WIDTH) for _ in rows]
        inputs = [[next(fresh) for _ in range(count)] for count in counts]
        cache.begin(counts)
        (entry,) = cache.entries
        keys, values = entry.update_and_fetch(*fed([each + [0] * (max(counts) - len(each)) for each in inputs]))
        mask = entry.make_mask(max(counts))
        assert mx.array_equal(values, mx.where(keys == 0, values, keys + 0.5))
        for number, (row, new) in enumerate(zip(rows, inputs, strict=True)):
            for query in range(len(new)):
                expected = visible(kind, row + new, len(row) + query)
                assert seen(keys, mask, number, query) == sorted(expected)
        kept = [rng.randint(0, count) for count in counts]
        rows = [row + new[:count] for row, new, count in zip(rows, inputs, kept, strict=True)]
        cache.take_back(list(map(len, rows)))
        assert cache.lengths == list(map(len, rows))
        passes += 1
        if rng.random() < 0.2:
            number = rng.randrange(len(rows))
            held, out = rows[number], KINDS[kind]()
            cache.leave(number, [out], len(held))
            rows[number] = rows[-1]
            rows.pop()
            left += 1
            after = next(fresh)
            shown, _ = out.update_and_fetch(*fed([[after]]))
            found = [int(key) for key in shown[0, 0, :, 0].tolist() if key]
            assert sorted(found)[-8:] == sorted([*held, after])[-8:] and out.offset == len(held) + 1
    assert left


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_leaves_gives_the_cache_that_it_would_have_alone(kind: str) -> None:
    held = list(range(1, 60))
    for length in (1, 5, 16, 17, 40):
        cache = BatchCache([KINDS[kind]()], WIDTH)
        for _ in range(3):
            cache.join([single(kind, held[:length])], length)
        out = KINDS[kind]()
        cache.leave(1, [out], length)
        alone = single(kind, held[:length])
        for later in range(100, 104):
            one, other = (each.update_and_fetch(*fed([[later]]))[0] for each in (out, alone))
            assert sorted(one.flatten().tolist()) == sorted(other.flatten().tolist())
        assert cache.lengths == [length, length]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("later", [0, WIDTH], ids=["at once", "while a pass is under way"])
def test_a_row_gives_up_tokens_of_the_pass_before_it_joined(kind: str, later: int) -> None:
    held, kept = list(range(1, 60)), 51
    one = single(kind, held[:50])
    one.update_and_fetch(*fed([held[50 : 50 + WIDTH]]))
    cache, out = BatchCache([KINDS[kind]()], WIDTH), KINDS[kind]()
    for row in (one, single(kind, held)):
        cache.join([row], row.offset)
    if later:
        cache.begin([later, later])
        cache.entries[0].update_and_fetch(*fed([[99] * later] * 2))
    assert cache.leave(0, [out], kept, spare=40) == kept
    found, alone = out.update_and_fetch(*fed([[100]]))[0], single(kind, [*held[:kept], 100]).keys
    assert sorted(found.flatten().tolist())[-16:] == sorted(alone[..., : kept + 1, :].flatten().tolist())[-16:]
    held_for_long = cache.leave(0, [KINDS[kind]()], 20)
    assert held_for_long == (20 if kind == "all" else None), "what the window at 20 tokens showed is gone"


def test_rows_take_the_memory_of_those_that_are_there() -> None:
    cache = BatchCache([KVCache()], WIDTH)
    for rows in range(1, 6):
        cache.join([single("all", [1] * 300 if rows == 1 else [2])], 300 if rows == 1 else 1)
        assert cache.arrays()[0].shape[::2] == (rows, 512)
    cache.leave(0, [KVCache()], 300)
    for _ in range(2):
        cache.join([single("all", [2])], 1)
    assert cache.arrays()[0].shape[::2] == (6, 256), "the longest has left"
