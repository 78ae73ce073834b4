"""The prompt pass: tokens into a cache, in chunks, no logits computed."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx

from spectool.runtime.groups.rank_0 import forward


def prefill_steps(
    model: Any,
    cache: list[Any],
    tokens: mx.array,
    step_size: int | Callable[[], int] = 2048,
    quantize: Callable[[], None] = lambda: None,
) -> Iterator[int]:
    """Feed ``tokens`` [tokens], perhaps none, in passes of ``step_size``; yield the tokens fed so far after each pass.

    A ``step_size`` that may change is asked for before each pass; ``quantize`` is called after it.
    """
    end = 0
    while end < tokens.size:
        first, end = end, min(end + (step_size() if callable(step_size) else step_size), tokens.size)
        forward(model, tokens[None, first:end], cache, logits=False)
        quantize()
        mx.eval([entry.state for entry in cache])
        mx.clear_cache()
        yield end


def prefill(model: Any, cache: list[Any], tokens: Sequence[int], step_size: int = 2048) -> None:
    """Feed token ids as `prefill_steps` does, all at once."""
    deque(prefill_steps(model, cache, mx.array(list(tokens), dtype=mx.int32), step_size), 0)
