"""The target's own token at every position of one pass.

Exact match serves any drafts and any sampler. Each position is sampled by itself, and a draft is right when it is what
was sampled. Drafts with a distribution are verified by `rejection` sampling.

Source: Leviathan et al. 2023, Fast Inference from Transformers via Speculative Decoding, Algorithm 1.
"""

from collections.abc import Sequence
from typing import cast

import mlx.core as mx

from spectool.runtime.decoding.sampling import Sampler, Sampling, row_by_row


def ids(tokens: mx.array) -> list[int]:
    """Evaluate ``tokens``, shape [tokens], and return them as Python integers."""
    return cast("list[int]", tokens.tolist())


def choose(
    logits: mx.array,
    logprobs: mx.array,
    sampler: Sampler | None,
    draft: Sequence[int],
    distribution: mx.array | None = None,
) -> mx.array:
    """Choose a token at each position; lazy, nothing is evaluated.

    Row ``i`` belongs to the position after draft token ``i``, and is used only when the drafts
    before it were right.

    Args:
        logits: The target's [rows, vocabulary].
        logprobs: The same, normalised.
        sampler: Draws from log-probabilities [1, vocabulary]; None takes the maximum.
        draft: Draft tokens, as many as rows but one.
        distribution: What leading drafts were drawn from [drawn, vocabulary]; others are guesses. None: exact match.

    Returns:
        Token ids [rows], by rejection sampling where there is a distribution and the sampler states
        its own, by exact match elsewhere.
    """
    if sampler is None:
        return mx.argmax(logprobs, axis=-1)
    if not isinstance(sampler, Sampling):
        return row_by_row(sampler, logprobs)
    if distribution is None:
        return sampler(logprobs)
    from spectool.runtime.decoding.rejection import accept_or_resample

    return accept_or_resample(sampler.probabilities(logits), mx.array(list(draft), dtype=mx.int32), distribution)
