"""What a task's gradient is taken of, and what is measured: cross-entropies, and KL.

D_T is the mean over prefixes of -sum_x p(x|s) log q(x|s), nats. Without the target's distribution, the tokens
of a text stand for it: what the corpus or the target itself went on with.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from spectool.build.training.examples.examples import Batch, Example, batch_of
from spectool.build.training.examples.pairing import Pairing, log_probabilities_of_target


class Divergence(NamedTuple):
    """How far a draft is from a target on some text.

    Attributes:
        cross_entropy: D_T, nats per place.
        kl: KL(p || q), nats per place; None where p is not known.
        acceptance: alpha_T, the mean of sum_x min(p(x), q(x)): the share of tokens drawn from q that rejection sampling
            accepts (Leviathan et al. 2023, Theorem 3.5); None likewise.
        places: Places that were measured.
    """

    cross_entropy: float
    kl: float | None
    acceptance: float | None
    places: int


def cross_entropy(model: Any, ids: mx.array, rows: mx.array, places: mx.array) -> mx.array:
    """Return the mean of -log q of the next tokens at places, nats.

    Args:
        model: The draft.
        ids: Its rows, int32 ``[rows, longest]``.
        rows: Row of each place, ``[places]``.
        places: Place in it, ``[places]``.
    """
    logits = model(ids[:, :-1])[rows, places].astype(mx.float32)
    right = mx.take_along_axis(logits, ids[rows, places + 1][:, None], axis=-1)[:, 0]
    return mx.mean(mx.logsumexp(logits, axis=-1) - right)


def distribution_cross_entropy(
    model: Any, pairing: Pairing, ids: mx.array, rows: mx.array, places: mx.array, log_p: mx.array
) -> mx.array:
    """Return the mean of -sum_x p(x) log q(x) at places, nats.

    Args:
        model: The draft.
        pairing: Ids to compare.
        ids: The draft's rows, int32 ``[rows, longest]``.
        rows: Row of each place, ``[places]``.
        places: Place in it, ``[places]``.
        log_p: The target's log-probabilities, ``[places, size]``.
    """
    log_q = pairing.of_draft(model(ids[:, :-1])[rows, places])
    return -mx.mean(mx.sum(mx.exp(log_p) * log_q, axis=-1))


def log_p_of(target: Any, pairing: Pairing, batch: Batch) -> mx.array:
    """Return the target's log-probabilities at the places of a batch, ``[places, size]``."""
    return log_probabilities_of_target(
        target, pairing, mx.array(batch.target), mx.array(batch.rows), mx.array(batch.at)
    )


def entropy_of(log_p: mx.array) -> mx.array:
    """Return the mean of -sum_x p(x) log p(x) over places, nats."""
    return -mx.mean(mx.sum(mx.exp(log_p) * log_p, axis=-1))


def log_q_of(draft: Any, pairing: Pairing, batch: Batch) -> mx.array:
    """Return the draft's log-probabilities there, ``[places, size]``."""
    return pairing.of_draft(draft(mx.array(batch.draft)[:, :-1])[mx.array(batch.rows), mx.array(batch.places)])


def place_by_place(log_p: mx.array, log_q: mx.array) -> mx.array:
    """Return what `measure` means over places: cross-entropy, entropy of p (nats), sum_x min(p(x), q(x)).

    Args:
        log_p: The target's log-probabilities, ``[places, size]``.
        log_q: The draft's, likewise.

    Returns:
        float32 ``[3, places]``.
    """
    p = mx.exp(log_p)
    overlap = mx.sum(mx.minimum(p, mx.exp(log_q)), axis=-1)
    return mx.stack([-mx.sum(p * log_q, axis=-1), -mx.sum(p * log_p, axis=-1), overlap])


def measure(draft: Any, target: Any, pairing: Pairing | None, examples: Sequence[Example], rows: int) -> Divergence:
    """Measure a draft on rows, a few at once.

    Args:
        draft: The draft.
        target: The target.
        pairing: Ids to compare; None to measure on the tokens of the rows.
        examples: The rows.
        rows: How many at once.
    """
    sums, total = np.zeros(3), 0
    for first in range(0, len(examples), rows):
        batch = batch_of(examples[first : first + rows], pairing is not None)
        number = len(batch.rows)
        if not number:
            continue
        if pairing is None:
            ids, of_row, places = mx.array(batch.draft), mx.array(batch.rows), mx.array(batch.places)
            means = mx.stack([cross_entropy(draft, ids, of_row, places), mx.array(0.0), mx.array(0.0)])
        else:
            found = place_by_place(log_p_of(target, pairing, batch), log_q_of(draft, pairing, batch))
            means = mx.mean(found, axis=1)
        sums += number * np.array(means, dtype=np.float64)
        total += number
    nats, entropy, overlap_of_all = (sums / total).tolist()
    if pairing is None:
        return Divergence(nats, None, None, total)
    return Divergence(nats, nats - entropy, overlap_of_all, total)
