"""Which drafts stand: the target's own token at every position of one pass, by exact match or rejection sampling.

*Exact match* serves any drafts and any sampler. Each position is sampled by itself, and a draft is right when it is
what was sampled.

*Rejection sampling* accepts more of the drafts that were drawn from a known distribution q over the target's
vocabulary, as a block: the longest beginning that may stand does, and after it comes a token drawn from what the
target's distribution p has left. It is never the rejected draft, so that here, too, a draft is right where the two
tokens are equal.

Both leave the target's distribution as it is (docs/sampling.md has the proof). A guess without a distribution
(dictionary, history, translated text) has all of q on itself: it stands with probability p(x), which is what exact
match gives, for less work.

Source: Sun et al. 2024, Block Verification Accelerates Speculative Decoding, Algorithm 2, Theorems 1 and 2. Token by
token: Leviathan et al. 2023, Fast Inference from Transformers via Speculative Decoding, Algorithm 1 and Appendix A.1;
Chen et al. 2023, Accelerating Large Language Model Decoding with Speculative Sampling, Algorithm 2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import mlx.core as mx

from spectool.runtime.sampling.samplers import (
    LogitsProcessor,
    Sampler,
    Sampling,
    block_sum,
    in_blocks,
    processed,
    row_by_row,
)


def evaluated(tokens: mx.array) -> list[int]:
    """Token ids [tokens] as Python integers, computed now."""
    return cast("list[int]", tokens.tolist())


def choose(
    logits: mx.array,
    logprobs: mx.array,
    sampler: Sampler | None,
    draft: Sequence[int],
    distribution: mx.array | None = None,
) -> mx.array:
    """A token for each position [rows]; lazy.

    Row ``i`` of the target's ``logits`` [rows, vocabulary], and of ``logprobs``, the same normalised, belongs to the
    position after ``i`` tokens of the ``draft`` [rows - 1]. A ``sampler`` draws from log-probabilities [1, vocabulary];
    None takes the maximum. Leading drafts were drawn from ``distribution`` [drawn, vocabulary], and the rest are
    guesses. None, or a sampler that is no `Sampling`, means exact match.
    """
    if sampler is None:
        return mx.argmax(logprobs, axis=-1)
    if not isinstance(sampler, Sampling):
        return row_by_row(sampler, logprobs)
    if distribution is None:
        return sampler(logits)
    return accept_or_resample(sampler.probabilities(logits), mx.array(list(draft), dtype=mx.int32), distribution)


@dataclass(frozen=True, slots=True)
class Draw:
    """How drafts are drawn: from the draft's distribution, by the sampler and the processors of the request."""

    sampling: Sampling
    processors: tuple[LogitsProcessor, ...]
    vocabulary: int  # of the target

    def __call__(self, logits: mx.array, history: mx.array | None) -> tuple[mx.array, mx.array] | None:
        """The next draft token [1], one that the draft has, and what it is drawn from, float32 [1, vocabulary]; lazy.

        ``logits`` are the draft's, over target ids [1, ids], -inf where it has no token; missing ids count as such.
        ``history`` are the target ids before it [tokens]. None where a processor refuses these by raising.
        """
        # Processors may name any id of the target.
        logits = logits[:, : self.vocabulary]
        logits = mx.pad(logits, [(0, 0), (0, self.vocabulary - logits.shape[-1])], constant_values=-math.inf)
        try:
            changed = processed(logits, self.processors, history)
        except Exception:  # the target will ask about it, if it gets there
            return None
        chosen = self.sampling.probabilities(changed)
        # A processor may force a token that the draft does not have.
        chosen = mx.where(logits > -math.inf, chosen, 0)
        mass = block_sum(chosen)[..., None]
        chosen = mx.where(mass > 0, chosen / mass, mx.softmax(logits.astype(mx.float32), axis=-1))
        return draw_from(chosen), chosen


def accept_or_resample(target: mx.array, draft: mx.array, distribution: mx.array) -> mx.array:
    """The leading drafts that stand and one token drawn after them, by block verification; lazy.

        w_0 = 1,  w_i = min(1, w_{i-1} p(x_i) / q(x_i))    the probability that the first i drafts stand
        r_i = sum of max(0, w_i p - q)                     what is left of p after them

    The verdict is the last i at which a uniform number is below r_i / (r_i + 1 - w_i). After the last draft q is 0, and
    this is w_i. The token is drawn from what is left.

    Args:
        target: p of each position, float32 [..., rows, vocabulary].
        draft: Draft tokens [..., rows - 1].
        distribution: q of the leading positions, float32 [..., drawn, vocabulary]. Drafts after them are guesses: all
            of their q is on themselves. One row more than drafts stands for a token that was drawn and cannot be right.

    Returns:
        Token ids [..., rows]: the drafts that stand, the one token, and -1 for what was not looked at.
    """
    rows, drawn = target.shape[-2], min(distribution.shape[-2], target.shape[-2])
    distribution = distribution[..., :drawn, :]
    draft = mx.pad(draft.astype(mx.int32), [(0, 0)] * (draft.ndim - 1) + [(0, 1)], constant_values=-1)
    at = mx.maximum(draft, 0)[..., None]
    p = mx.where(draft >= 0, mx.take_along_axis(target, at, axis=-1)[..., 0], 0)
    q = mx.take_along_axis(distribution, at[..., :drawn, :], axis=-1)[..., 0]
    q = mx.concatenate([q, mx.ones_like(p[..., drawn:])], axis=-1)
    ratios = mx.where(p > 0, mx.log(p) - mx.log(q), -math.inf)[..., :-1]
    joint = mx.cumsum(mx.concatenate([mx.zeros_like(p[..., :1]), ratios], axis=-1), axis=-1)
    weight = mx.exp(joint - mx.cummax(joint, axis=-1))
    shared = block_sum(mx.minimum(weight[..., :drawn, None] * target[..., :drawn, :], distribution))
    left = weight - mx.concatenate([shared, (weight * p)[..., drawn:]], axis=-1)
    sums = left + 1 - weight
    stands = mx.random.uniform(shape=p.shape) < mx.where(sums > 0, left / sums, 1)
    place = mx.arange(rows)
    verdict = mx.max(mx.where(stands, place, 0), axis=-1, keepdims=True)
    p = _row(target, verdict) * mx.take_along_axis(weight, verdict, axis=-1)
    q = (mx.arange(p.shape[-1]) == mx.take_along_axis(draft, verdict, axis=-1)).astype(p.dtype)  # of a guess
    q = mx.where(verdict < drawn, _row(distribution, mx.minimum(verdict, drawn - 1)), q) if drawn else q
    rest = mx.maximum(p - q, 0)
    # Where p = q, rounding may leave nothing.
    rest = mx.where(mx.sum(rest, axis=-1, keepdims=True) > 0, rest, p)
    return mx.where(place < verdict, draft, mx.where(place == verdict, draw_from(rest)[..., None], -1))


def draw_from(weights: mx.array) -> mx.array:
    """A token from each distribution [..., vocabulary], which need not sum to 1; lazy.

    By inversion: first a block of tokens, then a token of it. Sums over a block are short, so that rare tokens are not
    rounded away, and one number is drawn for each block, not for each token.
    """
    blocks = in_blocks(weights)
    block = _invert(mx.sum(blocks, axis=-1))[..., None]
    return (blocks.shape[-1] * block + _invert(_row(blocks, block))[..., None])[..., 0]


def _row(rows: mx.array, number: mx.array) -> mx.array:
    """One row [..., vocabulary] of ``rows`` [..., rows, vocabulary], by its ``number`` [..., 1]."""
    first = rows.shape[-2] * mx.arange(number.size).reshape(number.shape)
    return rows.reshape(-1, rows.shape[-1])[(first + number)[..., 0]]


def _invert(weights: mx.array) -> mx.array:
    """A place drawn from each of ``weights`` [..., places]; one of weight 0 is never drawn."""
    sums = mx.cumsum(weights, axis=-1)
    # A uniform number is at most 1 - 2**-24: its product with the last sum is below that.
    below = mx.random.uniform(shape=(*weights.shape[:-1], 1)) * sums[..., -1:]
    return mx.sum(sums <= below, axis=-1)
