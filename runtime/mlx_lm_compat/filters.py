"""mlx-lm's filters of logits [..., vocabulary], in the order of its ``make_sampler``; what they leave out is at -inf.

They refuse settings that restrict nothing, which therefore do not reach them.
"""

from collections.abc import Sequence
from typing import cast

import mlx.core as mx
from mlx_lm import sample_utils


def likely(logits: mx.array, top_p: float, min_p: float, min_tokens_to_keep: int) -> mx.array:
    """The tokens within top-p and min-p."""
    if top_p < 1:
        logits = sample_utils.apply_top_p(logits, top_p)
    if min_p != 0 and min_tokens_to_keep < logits.shape[-1]:
        logits = sample_utils.apply_min_p(logits, min_p, min_tokens_to_keep)
    return logits


def without_top_choices(logits: mx.array, probability: float, threshold: float, special: Sequence[int]) -> mx.array:
    """XTC, by one toss of a coin: the tokens but those above the threshold, of which the least probable one stays."""
    kept = [token for token in special if token < logits.shape[-1]]
    return cast(mx.array, sample_utils.apply_xtc(logits, probability, threshold, kept))


def best(logits: mx.array, top_k: int) -> mx.array:
    """The ``top_k`` most probable tokens; all for 0."""
    return sample_utils.apply_top_k(logits, top_k) if 0 < top_k < logits.shape[-1] else logits


def draw(logits: mx.array, temp: float) -> mx.array:
    """A token from each row, at a temperature; lazy."""
    return cast(mx.array, sample_utils.categorical_sampling(logits, temp))
