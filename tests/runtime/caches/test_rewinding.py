"""Going back in caches of every kind: what is there afterwards is what was there before."""

import copy
import random
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache, CacheList, ChunkedKVCache, KVCache, QuantizedKVCache, RotatingKVCache

from spectool import RuntimeUnsupported
from spectool.runtime.caches.leaves import flatten, trim
from spectool.runtime.caches.rewinding import Checkpoints
from spectool.tests.tiers import nightly


def feed(cache: list[Any], tokens: list[int]) -> None:
    """Feed every leaf; a recurrent state becomes the sum of ``(position + 1) * token``."""
    entry = mx.array(tokens, dtype=mx.float32)[None, None, :, None] * mx.ones(32)
    for leaf in flatten(cache):
        if isinstance(leaf, ArraysCache):
            state, count = (0, 0) if leaf[0] is None else (leaf[0], leaf[1].item())
            leaf[0] = state + sum((count + place + 1) * token for place, token in enumerate(tokens)) * mx.ones(3)
            leaf[1] = mx.array(count + len(tokens))
        else:
            if isinstance(leaf, ChunkedKVCache):
                leaf.maybe_trim_front()  # as llama4 does before each pass
            leaf.update_and_fetch(entry, entry)


def content(leaf: Any) -> list[float]:
    """Return the tokens in a leaf: what the next token sees of a window, the sum of a recurrent state."""
    if isinstance(leaf, ArraysCache):
        return [] if leaf[0] is None else leaf[0].tolist()
    if leaf.offset == 0:
        return []
    if isinstance(leaf, RotatingKVCache):
        seen = min(leaf.offset, leaf.max_size - 1)
        return leaf._temporal_order(leaf.keys)[0, 0, :, 0].tolist()[-seen:]
    keys = leaf.keys_and_values()[0]
    if isinstance(leaf, ChunkedKVCache):
        keys = keys[..., -leaf.chunk_size :, :]
    if isinstance(leaf, QuantizedKVCache):
        keys = mx.dequantize(*keys, group_size=32, bits=8)
    return [round(value) for value in keys[0, 0, :, 0].tolist()]


def assert_same(cache: list[Any], text: list[int], make: Any) -> None:
    fresh = make()
    for start in range(0, len(text), 7):
        feed(fresh, text[start : start + 7])
    for leaf, other in zip(flatten(cache), flatten(fresh), strict=True):
        assert content(leaf) == content(other), type(leaf).__name__


MAKES: dict[str, Any] = {
    "keys": lambda: [KVCache(), QuantizedKVCache(32, 8)],
    "window": lambda: [KVCache(), RotatingKVCache(max_size=12)],
    "chunks": lambda: [KVCache(), ChunkedKVCache(12)],
    "recurrent": lambda: [ArraysCache(2)],
    "hybrid": lambda: [ArraysCache(2), KVCache()],
    "all": lambda: [CacheList(ArraysCache(2), KVCache()), RotatingKVCache(max_size=12), QuantizedKVCache(32, 8)],
}


@pytest.mark.parametrize("kind", list(MAKES))
@pytest.mark.parametrize("seed", [0, *nightly(1, 2)])
def test_back_within_the_latest_pass(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    cache, text, again = MAKES[kind](), list[int](), list[int]()
    checkpoints = Checkpoints(cache)
    for _ in range(40):
        new = [rng.randrange(1, 9) for _ in range(rng.choice([1, 1, 3, 6]))]
        checkpoints.mark(len(again) + len(new))
        feed(cache, again + new)
        wanted = len(text) + rng.randint(0, len(new))
        text += new
        del text[wanted:]
        reached = checkpoints.rewind(wanted)
        assert reached is not None
        assert reached == checkpoints.length <= wanted
        again = text[reached:]
        assert kind in ("recurrent", "hybrid", "all") or not again, "what can be trimmed is not fed again"
        assert_same(cache, text[:reached], MAKES[kind])


@pytest.mark.parametrize("kind", list(MAKES))
@pytest.mark.parametrize("seed", [0, *nightly(1, 2)])
def test_back_over_several_passes(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    cache, text = MAKES[kind](), list[int]()
    checkpoints = Checkpoints(cache, keep=4)
    lost = 0
    for _ in range(60):
        for _ in range(rng.randint(1, 4)):
            new = [rng.randrange(1, 9) for _ in range(rng.choice([1, 1, 3]))]
            checkpoints.mark(len(new), windows_too=True)
            feed(cache, new)
            text += new
        wanted = max(0, len(text) - rng.choice([0, 1, 2, 5, 8]))
        reached = checkpoints.rewind(wanted)
        if reached is None:
            # No mark goes back as far: the owner starts from an empty cache.
            lost += 1
            cache, text = MAKES[kind](), []
            checkpoints = Checkpoints(cache, keep=4)
            continue
        assert reached == wanted or kind != "keys"
        assert_same(cache, text[:reached], MAKES[kind])
        del text[reached:]
    assert lost == 0 if kind == "keys" else lost < 20


@pytest.mark.parametrize("kind", list(MAKES))
@pytest.mark.parametrize("seed", [0, *nightly(1, 2)])
def test_copies_go_back_to_marks_for_good(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    cache, text, marks = MAKES[kind](), list[int](), [0]
    checkpoints = Checkpoints(cache, keep=4)
    for _ in range(40):
        new = [rng.randrange(1, 9) for _ in range(rng.choice([1, 1, 3, 6]))]
        feed(cache, new)  # by others, without a mark
        text += new
        for_good = rng.random() < 0.3
        checkpoints.hold(len(text), for_good=for_good)
        if for_good:
            marks.append(len(text))
            del marks[2:-3]  # 0 is no mark
        wanted = rng.randrange(len(text) + 1)
        copied = copy.deepcopy(cache)
        reached = Checkpoints(copied, len(text), 4, checkpoints).rewind(wanted)
        least = max(mark for mark in marks if mark <= wanted)
        assert least <= (reached or 0) <= wanted
        if reached is not None:
            assert_same(copied, text[:reached], MAKES[kind])
            feed(copied, [7, 7])
        if rng.random() < 0.2 and reached is not None:  # another text goes on from there
            cache, text, marks = copied, [*text[:reached], 7, 7], [mark for mark in marks if mark <= reached]
            checkpoints = Checkpoints(cache, len(text), 4, checkpoints)
            checkpoints.hold(reached)
            checkpoints.hold(len(text))
        assert_same(cache, text, MAKES[kind])


@pytest.mark.parametrize("kind", list(MAKES))
@pytest.mark.parametrize("fed_leaves", [0, 1, 2])
def test_a_pass_that_broke_off_is_undone_layer_by_layer(kind: str, fed_leaves: int) -> None:
    cache = MAKES[kind]()
    checkpoints = Checkpoints(cache)
    text = list(range(1, 9)) * 2
    checkpoints.mark(len(text))
    feed(cache, text)
    checkpoints.mark(3)
    feed(cache[:fed_leaves], [5, 6, 7])
    assert checkpoints.rewind(len(text)) == len(text)
    assert_same(cache, text, MAKES[kind])
    checkpoints.mark(2)
    feed(cache, [3, 4])
    assert_same(cache, [*text, 3, 4], MAKES[kind])


def test_a_mark_copies_nothing() -> None:
    cache = [ArraysCache(1), KVCache(), RotatingKVCache(max_size=1 << 12)]
    entry = mx.ones((1, 1, 1 << 12, 64))
    cache[0][0] = mx.ones((1 << 20,))
    for leaf in cache[1:]:
        leaf.update_and_fetch(entry, entry)
    mx.eval([leaf.state[0] for leaf in cache])
    before = mx.get_active_memory()
    Checkpoints(cache).mark(1, windows_too=True)
    assert mx.get_active_memory() == before


def test_a_mark_serves_again_after_going_back_to_it() -> None:
    leaf = ArraysCache(1)
    leaf[0] = mx.ones(3)
    checkpoints = Checkpoints([leaf])
    for _ in range(3):
        checkpoints.mark(2)
        leaf[0][:2] = 5  # in place: neither the mark nor what is restored from it may change along
        assert checkpoints.rewind(1) == 0
        assert leaf[0].tolist() == [1, 1, 1]


def test_a_window_is_saved_where_a_mark_without_it_stands() -> None:
    cache = [RotatingKVCache(max_size=12)]
    checkpoints = Checkpoints(cache)
    text = [token % 8 + 1 for token in range(20)]
    checkpoints.mark(len(text))
    feed(cache, text)
    checkpoints.mark(1)
    feed(cache, [9])
    assert checkpoints.rewind(len(text)) == len(text)
    checkpoints.mark(2, windows_too=True)
    feed(cache, [9])
    feed(cache, [9])
    assert checkpoints.rewind(len(text)) == len(text)
    assert_same(cache, text, lambda: [RotatingKVCache(max_size=12)])


def test_trimming_more_than_there_is_says_so() -> None:
    cache = [KVCache()]
    feed(cache, [1, 2, 3])
    with pytest.raises(RuntimeUnsupported, match="expected to trim 5 tokens, trimmed 3"):
        trim(cache[0], 5)
