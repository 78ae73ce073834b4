"""How far a prompt cache can be taken back, and taking it back with every layer checked.

mlx-lm trims all layers but reports the count of the first only, and asks a cache whether it
can be trimmed only once it may be too late: a rotating cache can be trimmed until its window
is full and never again. The functions here look at every single cache, also inside
``CacheList``, and tell *before* a forward pass how much of it could be undone.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from spectool import RuntimeUnsupported

UNLIMITED = 1 << 62


def leaves(cache: Sequence[Any]) -> Iterator[Any]:
    """Yield the caches that hold arrays, in order: ``CacheList`` members one by one."""
    for entry in cache:
        members = getattr(entry, "caches", None)
        if members is None:
            yield entry
        else:
            yield from leaves(members)


def require_trimmable(cache: Sequence[Any], model: object) -> None:
    """Check that rejected draft tokens can be taken out of ``cache`` again.

    Args:
        cache: A prompt cache, one entry for each layer.
        model: The model it belongs to; its type is named in the error.

    Raises:
        RuntimeUnsupported: A cache (recurrent state, a full window) cannot be trimmed.
    """
    stuck = sorted({type(leaf).__name__ for leaf in leaves(cache) if not leaf.is_trimmable()})
    if stuck:
        kind = getattr(model, "model_type", None) or type(model).__name__
        raise RuntimeUnsupported(
            f"model type {kind}: drafting needs caches that can be trimmed, got {', '.join(stuck)}. "
            "Generate without a drafter."
        )


def require_quantizable(cache: Sequence[Any], model: object) -> None:
    """Check that ``kv_bits`` can be applied to ``cache``.

    Raises:
        RuntimeUnsupported: A cache has no quantised form (mlx-lm's rotating cache fails halfway).
    """
    stuck = sorted(
        {type(entry).__name__ for entry in cache if hasattr(entry, "to_quantized") and hasattr(entry, "max_size")}
    )
    if stuck:
        kind = getattr(model, "model_type", None) or type(model).__name__
        raise RuntimeUnsupported(
            f"model type {kind}: kv_bits needs caches with a quantised form, got {', '.join(stuck)}. "
            "Generate without kv_bits."
        )


def room(cache: Sequence[Any]) -> int:
    """Return how many tokens can be fed in one pass so that all of them can be trimmed again.

    Args:
        cache: A prompt cache, one entry for each layer.

    Returns:
        Tokens (>= 0): ``UNLIMITED`` for growing caches, 0 where a cache cannot be trimmed, and
        for a windowed cache what is left before its window is full.
    """
    left = UNLIMITED
    for leaf in leaves(cache):
        if not leaf.is_trimmable():
            return 0
        window = getattr(leaf, "max_size", None)
        if window is not None:
            # is_trimmable() turns false at offset == max_size.
            left = min(left, int(window) - 1 - int(leaf.offset))
    return max(left, 0)


def offsets(cache: Sequence[Any]) -> list[int | None]:
    """Return the position of every leaf, in tokens; None for caches that do not count them."""
    positions = (getattr(leaf, "offset", None) for leaf in leaves(cache))
    return [position if isinstance(position, int) else None for position in positions]


def trim(cache: Sequence[Any], count: int) -> None:
    """Take the last ``count`` tokens out of every cache. Mutates ``cache``.

    Raises:
        RuntimeUnsupported: A cache gave up fewer tokens than asked; the caches now disagree
            and cannot be used any more.
    """
    if count <= 0:
        return
    for leaf in leaves(cache):
        trimmed = leaf.trim(count) if leaf.is_trimmable() else 0
        if trimmed != count:
            raise RuntimeUnsupported(
                f"{type(leaf).__name__}: expected to trim {count} tokens, trimmed {trimmed}. "
                "Generate without a drafter, with a fresh prompt cache."
            )


def rewind(cache: Sequence[Any], start: Sequence[int | None], kept: int) -> bool:
    """Take every cache back to ``kept`` tokens after ``start``. Mutates ``cache``.

    Made for clean-up after an error: a pass that broke off may have fed some layers and not
    others, so every leaf is measured by its own offset.

    Args:
        cache: A prompt cache, one entry for each layer.
        start: ``offsets`` of the same cache at an earlier time.
        kept: Tokens fed since then that shall stay.

    Returns:
        Whether every cache is where it should be. A cache that cannot be trimmed is left as it
        is, and a cache that does not count tokens is not judged.
    """
    complete = True
    for leaf, begin in zip(leaves(cache), start, strict=True):
        if begin is None:
            continue
        surplus = leaf.offset - begin - kept
        if surplus > 0 and leaf.is_trimmable():
            surplus -= leaf.trim(surplus)
        complete = complete and surplus == 0
    return complete
