"""The target's own token at every position of one pass, by either of two rules.

*Exact match*, for any drafts and any sampler: each position is sampled by itself, and a draft is
right when it is what was sampled.

*Rejection sampling*, for drafts drawn from a distribution q over the target's vocabulary, where p
is the target's: a draft x is right with probability min(1, p(x) / q(x)), and in place of a wrong one
stands a token drawn from max(0, p - q), normalised. A wrong one has p(x) < q(x) and is never
drawn again, so that for either rule the draft is right where the two tokens are equal.

Both leave the distribution as it is. A guess without a distribution (dictionary, history, translated
text) has all of q on x: it would be right with probability p(x), which is what exact match gives.

Source: Leviathan et al. 2023, Fast Inference from Transformers via Speculative Decoding, Algorithm 1
and Appendix A.1; Chen et al. 2023, Accelerating Large Language Model Decoding with Speculative
Sampling, Algorithm 2.
"""

from collections.abc import Sequence
from typing import cast

import mlx.core as mx

from spectool.runtime.decoding.sampling import Sampler, Sampling, draw_from, row_by_row


def ids(tokens: mx.array) -> list[int]:
    """Evaluate ``tokens``, shape [tokens], and return them as Python integers."""
    return cast("list[int]", tokens.tolist())


def choose(
    logprobs: mx.array, sampler: Sampler | None, draft: Sequence[int], distribution: mx.array | None = None
) -> mx.array:
    """Choose a token at each position; lazy, nothing is evaluated.

    Row ``i`` belongs to the position after draft token ``i``, and is used only when the drafts
    before it were right.

    Args:
        logprobs: The target's log-probabilities [rows, vocabulary].
        sampler: Draws from log-probabilities [1, vocabulary]; None takes the maximum.
        draft: Draft tokens, as many as rows but one.
        distribution: What each draft was drawn from, [drawn, vocabulary]; None where nothing was drawn.

    Returns:
        Token ids [rows], by rejection sampling where there is a distribution and the sampler tells
        its own, by exact match elsewhere.
    """
    if sampler is None:
        return mx.argmax(logprobs, axis=-1)
    if not isinstance(sampler, Sampling):
        return row_by_row(sampler, logprobs)
    if distribution is None:
        return sampler(logprobs)
    return accept_or_resample(sampler.probabilities(logprobs), mx.array(list(draft), dtype=mx.int32), distribution)


def accept_or_resample(target: mx.array, draft: mx.array, distribution: mx.array) -> mx.array:
    """Keep each draft or replace it, by rejection sampling; lazy.

    Args:
        target: p of each position, float32 [..., rows, vocabulary].
        draft: Draft tokens [..., rows - 1].
        distribution: q of the leading positions, float32 [..., drawn, vocabulary]. Drafts after them
            are guesses, by exact match. One row more than drafts stands for a token that was drawn and
            cannot be right.

    Returns:
        Token ids [..., rows].
    """
    rows = target.shape[-2]
    distribution = distribution[..., :rows, :]
    drawn = min(distribution.shape[-2], rows - 1)
    missing = [(0, 0)] * target.ndim
    missing[-2] = (0, rows - distribution.shape[-2])
    # Where nothing was drawn q is 0 and leaves p. Where p = q a trace of p is left, for what rounding rejects.
    instead = draw_from(mx.maximum(target - mx.pad(distribution, missing), 1e-20 * target))
    at = draft[..., :drawn, None]
    p = mx.take_along_axis(target[..., :drawn, :], at, axis=-1)[..., 0]
    q = mx.take_along_axis(distribution[..., :drawn, :], at, axis=-1)[..., 0]
    kept = mx.random.uniform(shape=p.shape) * q < p
    tokens = mx.where(kept, draft[..., :drawn], instead[..., :drawn])
    return mx.concatenate([tokens, instead[..., drawn:]], axis=-1)
