"""How a draft and a target are compared, and how far apart they are: cross-entropy, KL, and acceptance.

D_T is the mean over places of -sum_x p(x|s) log q(x|s), in nats. A draft that learns text, and not the target's
distribution, takes the next token of the text for p.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.nn.layers.activations import log_softmax
from numpy.typing import NDArray

from spectool import SpectoolError
from spectool.artifacts.alignment import NONE, Alignment
from spectool.artifacts.default_paths import find_artifact
from spectool.lab.tuning.examples import Batch, Example, batch_of
from spectool.runtime.drafters.draft_model import vocabulary_mismatch
from spectool.runtime.mlx_lm_compat import make_prompt_cache
from spectool.tokenization import Tokenizer

GAMMA = 5
ROWS = 32  # in a pass
_CUTS = (1 / 8, 1 / 4, 1 / 2, 3 / 4)  # where drafts begin, as shares of the longest row


class Pairing(NamedTuple):
    """Ids of the draft and the same ids of the target.

    With one vocabulary these are all ids. With two, these are the ids that an alignment pairs one to one, and both
    distributions are renormalised over them.
    """

    size: int  # number of pairs
    # ids of the draft, ``[size]``; None where ids below ``size`` are the same on both sides
    draft: mx.array | None = None
    target: mx.array | None = None  # their counterparts, ``[size]``; None likewise

    @property
    def same_vocabulary(self) -> bool:
        """Whether an id is the same on both sides."""
        return self.draft is None

    def of_draft(self, logits: mx.array) -> mx.array:
        """The draft's log-probabilities over the pairs, float32 ``[…, size]``."""
        return self._log_softmax(logits, self.draft)

    def of_target(self, logits: mx.array) -> mx.array:
        """The target's log-probabilities, in the same order."""
        return self._log_softmax(logits, self.target)

    def _log_softmax(self, logits: mx.array, ids: mx.array | None) -> mx.array:
        found: mx.array = log_softmax(logits[..., slice(self.size) if ids is None else ids].astype(mx.float32))
        return found


def pairing_of(draft: Tokenizer, target: Tokenizer, alignment: Path | None) -> Pairing:
    """How two models are compared: by id, or through their alignment where their vocabularies differ.

    Raises:
        SpectoolError: The vocabularies differ, and there is no alignment.
        ArtifactError: The alignment is damaged or of other tokenizers.
    """
    if vocabulary_mismatch(draft.vocabulary, target.vocabulary) is None:
        return Pairing(min(draft.size, target.size))
    if alignment is None:
        raise SpectoolError(
            f"{draft.name}: has another vocabulary than {target.name}, so their probabilities can only be compared "
            f"through an alignment. Make one (spectool align --draft {draft.name} --target {target.name} -o X.align) "
            "and give --alignment X.align"
        )
    opened = Alignment(find_artifact(alignment, ".align"))
    opened.require(draft, target)
    counterpart, back = np.array(opened.draft.counterpart), np.array(opened.target.counterpart)
    counterpart[list(draft.specials)] = NONE
    # A byte-fallback token has the bytes of an ordinary one but is never written, so both ids must name each other.
    shared = np.flatnonzero((counterpart != NONE) & (back[counterpart] == np.arange(len(counterpart))))
    return Pairing(len(shared), mx.array(shared.astype(np.int32)), mx.array(counterpart[shared]))


class Divergence(NamedTuple):
    """How far a draft is from a target on some text."""

    cross_entropy: float  # D_T, nats per place
    kl: float  # KL(p || q), nats per place
    # alpha_T, the mean of sum_x min(p(x), q(x)): the share of tokens drawn from q that rejection sampling accepts
    # (Leviathan et al. 2023, Theorem 3.5)
    acceptance: float
    places: int  # places that were measured


def cross_entropy(model: Any, batch: Batch, pairing: Pairing | None = None, log_p: mx.array | None = None) -> mx.array:
    """The mean of -sum_x p(x) log q(x) at a batch's places, nats.

    ``log_p`` comes from `log_p_of`; without it and a pairing, the next tokens of the draft's rows stand for p.
    """
    if pairing is not None and log_p is not None:
        return mx.mean(crossed(log_p, log_q_of(model, pairing, batch)))
    ids, rows, places = mx.array(batch.draft), mx.array(batch.rows), mx.array(batch.places)
    logits = model(ids[:, :-1])[rows, places].astype(mx.float32)
    return nn.losses.cross_entropy(logits, ids[rows, places + 1], reduction="mean")


def log_p_of(target: Any, pairing: Pairing, batch: Batch) -> mx.array:
    """The target's log-probabilities at the places of a batch, ``[places, size]``, without a gradient."""
    return mx.stop_gradient(pairing.of_target(target(mx.array(batch.target))[mx.array(batch.rows), mx.array(batch.at)]))


def crossed(log_p: mx.array, log_q: mx.array) -> mx.array:
    """The cross-entropy -sum_x p(x) log q(x) of each place, nats ``[places]``."""
    return -mx.sum(mx.exp(log_p) * log_q, axis=-1)


def log_q_of(draft: Any, pairing: Pairing, batch: Batch) -> mx.array:
    """The draft's log-probabilities at the same places, ``[places, size]``."""
    return pairing.of_draft(draft(mx.array(batch.draft)[:, :-1])[mx.array(batch.rows), mx.array(batch.places)])


def place_by_place(log_p: mx.array, log_q: mx.array) -> mx.array:
    """Cross-entropy, entropy of p (both nats), and sum_x min(p(x), q(x)) of each place, float32 ``[3, places]``."""
    overlap = mx.sum(mx.exp(mx.minimum(log_p, log_q)), axis=-1)
    return mx.stack([crossed(log_p, log_q), crossed(log_p, log_p), overlap])


def measure_divergence(draft: Any, target: Any, pairing: Pairing, examples: Sequence[Example], rows: int) -> Divergence:
    """Measure a draft on examples, in batches of ``rows``."""
    sums, total = np.zeros(3), 0
    for first in range(0, len(examples), rows):
        batch = batch_of(examples[first : first + rows], paired=True)
        number = len(batch.rows)
        if not number:
            continue
        found = place_by_place(log_p_of(target, pairing, batch), log_q_of(draft, pairing, batch))
        sums += number * np.array(mx.mean(found, axis=1), dtype=np.float64)
        total += number
    nats, entropy, overlap = (sums / total).tolist()
    return Divergence(nats, nats - entropy, overlap, total)


def beginnings(rows: Sequence[NDArray[np.int32]], longest: int) -> list[NDArray[np.int32]]:
    """Beginnings of rows, grouped by length, int32 ``[rows, length]`` each."""
    lengths = sorted({max(1, round(cut * longest)) for cut in _CUTS})
    groups = [[row[:length] for row in rows if len(row) >= length] for length in lengths]
    return [np.stack(group) for group in groups if group]


def acceptance_proxy(
    draft: Any, target: Any, pairing: Pairing, prompts: Sequence[NDArray[np.int32]], seed: Sequence[int]
) -> float:
    """The acceptance proxy of s-CDF's authors (appendix D.1): accepted over drafted tokens.

    The draft continues the beginnings of held-out rows greedily for gamma tokens. The target scores the same places in
    one pass, and a token is accepted while u < min(1, p/q). That is not the acceptance rate of any decoding: where a
    draft knows nothing, q is small and p/q is large, so it may score better the less it knows. `measure_divergence`
    gives the rate of rejection sampling itself.

    Draft and target must have one vocabulary; the prompts are from `beginnings`.
    """
    rng = np.random.default_rng(list(seed))
    accepted = drafted = 0
    for group in prompts:
        for first in range(0, len(group), ROWS):
            prompt = mx.array(group[first : first + ROWS])
            ratio = np.array(_ratios(draft, target, pairing, prompt))
            kept = np.cumprod(rng.random(ratio.shape) < np.minimum(1, ratio), axis=1)
            accepted += int(kept.sum())
            drafted += kept.size
    return accepted / drafted


def _ratios(draft: Any, target: Any, pairing: Pairing, prompt: mx.array) -> mx.array:
    """The ratios p/q of the draft's own best tokens, ``[rows, gamma]``."""
    cache = _prompted(draft, prompt)
    feed, tokens, chosen = prompt[:, -1:], [], []
    for _ in range(GAMMA):
        log_q = pairing.of_draft(draft(feed, cache=cache)[:, -1])
        feed = mx.argmax(log_q, axis=-1, keepdims=True).astype(prompt.dtype)
        tokens.append(feed)
        chosen.append(mx.take_along_axis(log_q, feed, axis=-1))
    drafts, log_q = mx.concatenate(tokens, axis=1), mx.concatenate(chosen, axis=1)
    logits = target(mx.concatenate([prompt[:, -1:], drafts[:, :-1]], axis=1), cache=_prompted(target, prompt))
    log_p = mx.take_along_axis(pairing.of_target(logits), drafts[..., None], axis=-1)[..., 0]
    return mx.exp(log_p - log_q)


def _prompted(model: Any, prompt: mx.array) -> list[Any]:
    """A cache of ``prompt`` without its last token."""
    cache: list[Any] = make_prompt_cache(model)
    if prompt.shape[1] > 1:
        model(prompt[:, :-1], cache=cache)
    return cache
