"""The prompt pass: tokens into a cache, in chunks, no logits computed."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx


def prefill(
    model: Any,
    cache: list[Any],
    tokens: mx.array,
    step_size: int = 2048,
    quantize: Callable[[], None] = lambda: None,
    progress: Callable[[int], None] = lambda fed: None,
) -> int | None:
    """Feed ``tokens`` in passes of ``step_size``. Mutates ``cache``.

    Args:
        model: An mlx-lm model.
        cache: Its prompt cache.
        tokens: Token ids, shape [tokens]; may be empty.
        step_size: Tokens in one pass.
        quantize: Called after each pass.
        progress: Called after each pass with the tokens fed so far.

    Returns:
        The size of the model's vocabulary; None when there was nothing to feed.
    """
    vocabulary = None
    for first in range(0, tokens.size, step_size):
        # Only the shape of the lazy logits is read.
        vocabulary = int(model(tokens[None, first : first + step_size], cache=cache).shape[-1])
        quantize()
        mx.eval([entry.state for entry in cache])
        mx.clear_cache()
        progress(min(first + step_size, tokens.size))
    return vocabulary
