"""How a request chooses its tokens, as probabilities: what drawn drafts and rejection sampling need.

A sampler of mlx-lm is a function from log-probabilities to tokens; the distribution it draws from is
not known. `Sampling` is made from the same numbers and states it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import mlx.core as mx

from spectool.runtime.host.generation import sample_utils

Sampler = Callable[[mx.array], mx.array]
LogitsProcessor = Callable[[mx.array, mx.array], mx.array]


@dataclass(frozen=True)
class Sampling:
    """A sampler like those of mlx-lm's ``make_sampler``, whose distribution is known.

    Attributes:
        temp: Temperature; 0 takes the most probable token, whatever the rest says.
        top_p: Most probable tokens up to this mass; 0 and 1 for all.
        min_p: Least probability, as a share of the best token's; 0 for all.
        min_tokens_to_keep: So many tokens stay, whatever ``min_p`` says.
        top_k: So many most probable tokens; 0 for all.
        xtc_probability: How often all tokens above the threshold but the least of them are left out.
        xtc_threshold: Least probability of what is left out then, 0 to 0.5.
        xtc_special_tokens: Token ids that are never left out then.
    """

    temp: float = 0.0
    top_p: float = 0.0
    min_p: float = 0.0
    min_tokens_to_keep: int = 1
    top_k: int = 0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    xtc_special_tokens: tuple[int, ...] = ()

    def __call__(self, logprobs: mx.array) -> mx.array:
        """Draw a token from each row of log-probabilities [rows, vocabulary], with mlx-lm's own sampler; lazy."""
        if self.temp and self.xtc_probability > 0:
            return row_by_row(self._host, logprobs)  # it tosses one coin a call
        return self._host(logprobs)

    def probabilities(self, logits: mx.array) -> mx.array:
        """Return the distribution that a token is drawn from; lazy.

        The filters are mlx-lm's, in its order. XTC is a mixture: its coin decides between two filters. None of them
        needs normalised logits, which saves a vocabulary's exponentials.

        Args:
            logits: Logits or log-probabilities [..., vocabulary].

        Returns:
            Probabilities, float32 [..., vocabulary].
        """
        if self.temp == 0:
            return (mx.arange(logits.shape[-1]) == mx.argmax(logits, axis=-1, keepdims=True)).astype(mx.float32)
        if 0 < self.top_p < 1:  # it takes exponentials, which may be too large
            logits = sample_utils.apply_top_p(logits - mx.max(logits, axis=-1, keepdims=True), self.top_p)
        if self.min_p != 0:
            logits = sample_utils.apply_min_p(logits, self.min_p, self.min_tokens_to_keep)
        share = self.xtc_probability
        if share <= 0:
            return self._at_temperature(logits)
        cut = sample_utils.apply_xtc(logits, 1.0, self.xtc_threshold, list(self.xtc_special_tokens))
        return (1 - share) * self._at_temperature(logits) + share * self._at_temperature(cut)

    def _at_temperature(self, logits: mx.array) -> mx.array:
        """Apply what comes after XTC."""
        if self.top_k > 0:
            logits = sample_utils.apply_top_k(logits, self.top_k)
        chosen = mx.softmax(logits.astype(mx.float32) * (1 / self.temp), axis=-1)
        return chosen / total(chosen)[..., None]

    @cached_property
    def _host(self) -> Sampler:
        sampler: Sampler = sample_utils.make_sampler(
            self.temp,
            self.top_p,
            self.min_p,
            self.min_tokens_to_keep,
            self.top_k,
            self.xtc_probability,
            self.xtc_threshold,
            list(self.xtc_special_tokens),
        )
        return sampler


def total(weights: mx.array) -> mx.array:
    """Return the sum of each of ``weights`` [..., vocabulary]; MLX's own loses rare tokens on a CPU; lazy."""
    return mx.sum(mx.sum(in_blocks(weights), axis=-1), axis=-1)


def in_blocks(weights: mx.array) -> mx.array:
    """Return ``weights`` [..., vocabulary] as blocks of neighbours [..., blocks, blocks], zeros at the end; lazy."""
    blocks = math.isqrt(weights.shape[-1] - 1) + 1
    if missing := blocks * blocks - weights.shape[-1]:
        weights = mx.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, missing)])
    return weights.reshape(*weights.shape[:-1], blocks, blocks)


def processed(logits: mx.array, processors: Sequence[LogitsProcessor], tokens: mx.array | None) -> mx.array:
    """Apply the processors to each position; lazy.

    Args:
        logits: Shape [rows, vocabulary], one row for each position.
        processors: Applied in order to the logits [1, vocabulary] of each row.
        tokens: All tokens before the last row, shape [history + rows - 1]: row ``i`` is after
            ``history + i`` of them. None where there are no processors.

    Returns:
        Logits [rows, vocabulary].
    """
    if not processors or tokens is None:
        return logits
    history = tokens.size - logits.shape[0] + 1
    rows = []
    for row in range(logits.shape[0]):
        row_logits = logits[row : row + 1]
        for processor in processors:
            row_logits = processor(tokens[: history + row], row_logits)
        rows.append(row_logits)
    return mx.concatenate(rows)


def log_probabilities(logits: mx.array) -> mx.array:
    """Normalise logits [..., vocabulary]; lazy."""
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def row_by_row(sampler: Sampler, logprobs: mx.array) -> mx.array:
    """Call ``sampler`` for each row [1, vocabulary] by itself; return the tokens [rows]."""
    return mx.concatenate([sampler(logprobs[row : row + 1]) for row in range(logprobs.shape[0])])
