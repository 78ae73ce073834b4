"""How a draft and a target are compared, and how far apart they are: cross-entropy, KL, and acceptance.

D_T is the mean over places of -sum_x p(x|s) log q(x|s), in nats.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from mlx.nn.layers.activations import log_softmax

from spectool import SpectoolError
from spectool.artifacts.alignment import NONE, Alignment
from spectool.artifacts.default_paths import find_artifact
from spectool.lab.tuning.examples import Example, Padded, batch_of
from spectool.runtime.drafters.draft_model import vocabulary_mismatch
from spectool.tokenization.tokenizer import Tokenizer


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
            f"through an alignment. Make one (spectool align --draft {draft.name} --target {target.name} --corpus TEXT "
            "-o X.align) and give --alignment X.align"
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


def cross_entropy(draft: Any, pairing: Pairing, batch: Padded, log_p: mx.array) -> mx.array:
    """D_T at a batch's places, nats; ``log_p`` comes from `log_p_of`."""
    return mx.mean(crossed(log_p, log_q_of(draft, pairing, batch)))


def log_p_of(target: Any, pairing: Pairing, batch: Padded) -> mx.array:
    """The target's log-probabilities at the places of a batch, ``[places, size]``, without a gradient."""
    return mx.stop_gradient(pairing.of_target(target(mx.array(batch.target))[mx.array(batch.rows), mx.array(batch.at)]))


def crossed(log_p: mx.array, log_q: mx.array) -> mx.array:
    """The cross-entropy -sum_x p(x) log q(x) of each place, nats ``[places]``."""
    return -mx.sum(mx.exp(log_p) * log_q, axis=-1)


def log_q_of(draft: Any, pairing: Pairing, batch: Padded) -> mx.array:
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
        batch = batch_of(examples[first : first + rows])
        number = len(batch.rows)
        if not number:
            continue
        found = place_by_place(log_p_of(target, pairing, batch), log_q_of(draft, pairing, batch))
        sums += number * np.array(mx.mean(found, axis=1), dtype=np.float64)
        total += number
    nats, entropy, overlap = (sums / total).tolist()
    return Divergence(nats, nats - entropy, overlap, total)
