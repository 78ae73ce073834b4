"""The target's own choice at every position of one pass."""

from collections.abc import Callable, Sequence
from typing import cast

import mlx.core as mx

Sampler = Callable[[mx.array], mx.array]
LogitsProcessor = Callable[[mx.array, mx.array], mx.array]


def ids(tokens: mx.array) -> list[int]:
    """Evaluate ``tokens``, shape [tokens], and return them as Python integers."""
    return cast("list[int]", tokens.tolist())


def choose(
    logits: mx.array,
    sampler: Sampler | None,
    processors: Sequence[LogitsProcessor],
    tokens: mx.array | None,
) -> tuple[mx.array, mx.array]:
    """Choose a token at each position; lazy, nothing is evaluated.

    Row ``i`` belongs to the position after draft token ``i``, and is used only when the drafts
    before it were right: then ``tokens`` up to there is the true history.

    Args:
        logits: Shape [rows, vocabulary].
        sampler: Draws from log-probabilities [1, vocabulary]; None takes the maximum.
        processors: Applied in order to the logits [1, vocabulary] of each row.
        tokens: History and draft, shape [history + rows - 1]; needed by the processors only.

    Returns:
        Token ids [rows] and log-probabilities [rows, vocabulary].
    """
    if sampler is None and not processors:
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        return mx.argmax(logprobs, axis=-1), logprobs
    rows = logits.shape[0]
    chosen, all_logprobs = [], []
    for row in range(rows):
        row_logits = logits[row : row + 1]
        if tokens is not None:
            seen = tokens[: tokens.size - rows + 1 + row]
            for processor in processors:
                row_logits = processor(seen, row_logits)
        logprobs = row_logits - mx.logsumexp(row_logits, axis=-1, keepdims=True)
        # One call a row: samplers like XTC toss one coin a call, which rows must not share.
        chosen.append(mx.argmax(logprobs, axis=-1) if sampler is None else sampler(logprobs))
        all_logprobs.append(logprobs)
    return mx.concatenate(chosen), mx.concatenate(all_logprobs)
