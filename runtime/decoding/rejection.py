"""Rejection sampling: drafts drawn from a known distribution, and the target's verdict on them.

For drafts drawn from a distribution q over the target's vocabulary, where p is the target's: a draft x
is right with probability min(1, p(x) / q(x)), and in place of a wrong one stands a token drawn from
max(0, p - q), normalised. A wrong one has p(x) < q(x) and is never drawn again, so that the draft is
right where the two tokens are equal, as for exact match.

Both rules leave the distribution as it is. A guess without a distribution (dictionary, history, translated
text) has all of q on x: it would be right with probability p(x), which is what exact match gives.

Source: Leviathan et al. 2023, Fast Inference from Transformers via Speculative Decoding, Algorithm 1
and Appendix A.1; Chen et al. 2023, Accelerating Large Language Model Decoding with Speculative
Sampling, Algorithm 2.
"""

import math
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from spectool import RuntimeUnsupported
from spectool.runtime.decoding.sampling import LogitsProcessor, Sampler, Sampling, log_probabilities


@dataclass(frozen=True, slots=True)
class Draw:
    """How drafts are drawn: from the draft's distribution, by the settings of the request.

    Attributes:
        sampling: The request's sampler.
        processors: The request's logits processors.
        vocabulary: Logits of the target for one position.
    """

    sampling: Sampling
    processors: tuple[LogitsProcessor, ...]
    vocabulary: int

    def __call__(self, logits: mx.array, history: mx.array | None) -> tuple[mx.array, mx.array]:
        """Draw the next draft token; lazy.

        Args:
            logits: The draft's, over target ids [1, ids]; -inf where the draft has no token, and taken
                for -inf where ids are missing.
            history: Target ids before it [tokens]; needed by the processors only.

        Returns:
            The token [1], one that the draft has, and the distribution it is drawn from, float32 [1, vocabulary].
        """
        # Processors may name any id of the target.
        logits = logits[:, : self.vocabulary]
        logits = mx.pad(logits, [(0, 0), (0, self.vocabulary - logits.shape[-1])], constant_values=-math.inf)
        chosen = self.sampling.probabilities(log_probabilities(logits, self.processors, history))
        # A processor may force a token that the draft does not have.
        chosen = mx.where(logits > -math.inf, chosen, 0)
        mass = mx.sum(chosen, axis=-1, keepdims=True)
        chosen = mx.where(mass > 0, chosen / mass, mx.softmax(logits.astype(mx.float32), axis=-1))
        return draw_from(chosen), chosen


def draw_for(model: Any, verify: str, sampler: Sampler | None, processors: tuple[LogitsProcessor, ...]) -> Draw | None:
    """Return how drafts are drawn for rejection sampling; None where they are not."""
    if verify != "rejection":
        raise RuntimeUnsupported(f"verify: expected 'exact' or 'rejection', got {verify!r}")
    if sampler is None:
        return None
    if not isinstance(sampler, Sampling):
        raise RuntimeUnsupported(
            f"verify='rejection': expected a sampler with a known distribution, got {sampler!r}. "
            "Pass spectool.runtime.Sampling(temp=…), or verify='exact'."
        )
    # Built and never computed: only the shape is read.
    return Draw(sampler, processors, int(model(mx.zeros((1, 1), dtype=mx.int32)).shape[-1]))


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


def draw_from(probabilities: mx.array) -> mx.array:
    """Draw a token from each distribution [..., vocabulary], which need not sum to 1; lazy."""
    return mx.random.categorical(mx.log(probabilities))
