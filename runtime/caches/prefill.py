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
) -> None:
    """Feed ``tokens`` [tokens], perhaps none, in passes of ``step_size``.

    After each pass, ``quantize`` is called, and ``progress`` with the tokens fed so far.
    """
    for first in range(0, tokens.size, step_size):
        end = min(first + step_size, tokens.size)
        model(tokens[None, first:end], cache=cache)  # the logits are never computed
        quantize()
        mx.eval([entry.state for entry in cache])
        mx.clear_cache()
        progress(end)
