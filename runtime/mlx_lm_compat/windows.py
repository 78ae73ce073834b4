"""Caches that drop old tokens (windows): cutting tokens off their end, and masks for several tokens at once.

*Sliding windows* (rotating caches). A window of M tokens serves a query with itself and the M - 1 tokens before it.
mlx-lm holds it in one of three forms (n = entries held, index = where the next single token goes):

    growing   index = offset            nothing dropped yet
    ring      n = M, index anywhere     single tokens overwrite the oldest entry in place
    in order  n = M - 1 + s = index     left by a pass over s > 1 tokens: new arrays, the oldest first

So the last s tokens can be cut off again: what remains is what the next query needs. mlx-lm itself calls a full window
untrimmable.

*Chunks* (chunked caches). Before a pass all but the last M tokens are dropped, so that the tokens of the latest pass
can be cut off again as well. mlx-lm itself believes that any number can.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import mlx.core as mx

from spectool import RuntimeUnsupported
from spectool.runtime.mlx_lm_compat import ChunkedKVCache, RotatingKVCache

WINDOWS = (RotatingKVCache, ChunkedKVCache)


def keeps_all(window: Any, count: int = 0) -> bool:
    """Whether a window has dropped nothing so far, and drops nothing when ``count`` more tokens are fed."""
    if isinstance(window, ChunkedKVCache):
        return bool(window.start_position == 0 and window.offset + count <= window.chunk_size)
    return bool(window._idx == window.offset and window.offset + count <= window.max_size)


def trimmable(window: Any) -> int:
    """How many of the latest tokens can be cut off so that the window is still full, or as it grew."""
    if isinstance(window, ChunkedKVCache):
        dropped = window.start_position
        return int(max(0, window.offset - dropped - window.chunk_size) if dropped else window.offset)
    if window._idx == window.offset:
        return int(window.offset)
    return max(0, int(window.keys.shape[2] - window.max_size))


def trim_window(window: Any, count: int) -> None:
    """Cut the last ``count`` tokens off ``window``: at most ``trimmable``, or all tokens of the latest pass.

    The latter leaves one stale entry where the next token overwrites it, before anything reads it.
    """
    if isinstance(window, ChunkedKVCache):
        window.offset -= count  # what stands beyond it is overwritten
        return
    entries = window.keys.shape[2]
    if entries > window.max_size:
        # mlx-lm cuts what exceeds the window off the front, so none of it may be stale.
        left = max(entries - count, window.max_size)
        window.keys, window.values = window.keys[:, :, :left], window.values[:, :, :left]
    window.offset -= count
    window._idx -= count


def held_in_order(single: Any, most: int) -> tuple[list[mx.array], mx.array]:
    """Keys and values that the cache of one text holds, by position, and these positions [tokens].

    Of a window, these are at most as many, its latest ones, and more than it needs where as many can be cut off.
    """
    both = [single.keys, single.values]
    if not isinstance(single, RotatingKVCache):
        return [each[..., : single.offset, :] for each in both], mx.arange(single.offset)
    both = [single._temporal_order(each) for each in both]
    keep = min(single.keep, both[0].shape[2])
    recent = min(both[0].shape[2], most) - keep
    both = [mx.concatenate([each[..., :keep, :], each[..., each.shape[2] - recent :, :]], axis=2) for each in both]
    return both, mx.concatenate([mx.arange(keep), mx.arange(single.offset - recent, single.offset)])


def fill(single: Any, both: Sequence[mx.array], length: int, entries: int) -> None:
    """Let the cache of a text hold its latest ``entries``: keys and values, the oldest first, or none at all."""
    single.keys, single.values = both or (None, None)
    single.offset = length
    if isinstance(single, RotatingKVCache):
        single._idx = entries


def use_masks(leaves: Iterable[Any], *, exact: bool) -> None:
    """Let tokens that are fed at once see what they would see one by one (``exact``), or what mlx-lm lets them see.

    mlx-lm's mask for several tokens moves past the first ``keep`` tokens, which single tokens go on seeing. Some models
    (PLaMo 3) ask for a mask that is wider than the cache, from which single tokens see no more than the cache holds.
    """
    for leaf in leaves:
        vars(leaf).pop("make_mask", None)
        if exact and isinstance(leaf, RotatingKVCache):
            leaf.make_mask = partial(_mask, leaf)


def require_known_mask(keeps: Any, max_size: int, window_size: int | None) -> None:
    """Raise `RuntimeUnsupported` where a window that ``keeps`` its first tokens is wider than the model's own."""
    if keeps and window_size and window_size < max_size:
        raise RuntimeUnsupported(
            f"max_kv_size {max_size}: the model's own window has {window_size} tokens, so what a token sees depends on "
            f"the passes before it. Give at most {window_size}, or generate without max_kv_size or without drafts"
        )


def _mask(window: Any, N: int, window_size: int | None = None, return_array: bool = False) -> Any:
    """The mask for ``N`` tokens, bool [N, entries]; mlx-lm's own where it is right. Same signature."""
    require_known_mask(window.keep and N > 1, window.max_size, window_size)
    if N > 1 and not window.keep:
        window_size = min(window_size or window.max_size, window.max_size)
    if N == 1 or not window.keep or window.offset + N <= window.max_size:
        return type(window).make_mask(window, N, window_size, return_array)
    before = min(window.max_size - 1, window.offset)
    rows, columns = mx.arange(before, before + N)[:, None], mx.arange(before + N)
    recent = rows < columns + window.max_size - window.keep
    return (rows >= columns) & (recent | (columns < window.keep))
