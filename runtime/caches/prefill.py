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
) -> int:
    """Feed ``tokens`` in passes of ``step_size``. Mutates ``cache``.

    Args:
        model: An mlx-lm model.
        cache: Its prompt cache.
        tokens: Token ids, shape [tokens]; may be empty.
        step_size: Tokens in one pass.
        quantize: Called after each pass.
        progress: Called after each pass with the tokens fed so far.

    Returns:
        Logits of the model for one position; 0 when there was nothing to feed.
    """
    vocabulary = 0
    for first in range(0, tokens.size, step_size):
        end = min(first + step_size, tokens.size)
        # Only the shape of the lazy logits is read.
        vocabulary = int(model(tokens[None, first:end], cache=cache).shape[-1])
        quantize()
        mx.eval([entry.state for entry in cache])
        mx.clear_cache()
        progress(end)
    return vocabulary


def vocabulary_size(model: Any) -> int:
    """Return the logits of a model for one position: those of a pass that is built and never computed."""
    return int(model(mx.zeros((1, 1), dtype=mx.int32)).shape[-1])
