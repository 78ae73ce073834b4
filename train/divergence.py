"""What a task's gradient is taken of, and what is measured: cross-entropies, and KL.

D_T is the mean over prefixes of -sum_x p(x|s) log q(x|s), nats. Without the target's distribution, the tokens
of a text stand for it: what the corpus or the target itself went on with.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from spectool.train.examples import Batch, Example, batch_of
from spectool.train.pairing import Pairing, log_probabilities_of_target
from spectool.train.softmax import exponential


class Divergence(NamedTuple):
    """How far a draft is from a target on some text.

    Attributes:
        cross_entropy: D_T, nats per place.
        kl: KL(p || q), nats per place; None where p is not known.
        places: Places that were measured.
    """

    cross_entropy: float
    kl: float | None
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
    return -mx.mean(mx.sum(exponential(log_p) * log_q, axis=-1))


def log_p_of(target: Any, pairing: Pairing, batch: Batch) -> mx.array:
    """Return the target's log-probabilities at the places of a batch, ``[places, size]``."""
    return log_probabilities_of_target(
        target, pairing, mx.array(batch.target), mx.array(batch.rows), mx.array(batch.at)
    )


def entropy_of(log_p: mx.array) -> mx.array:
    """Return the mean of -sum_x p(x) log p(x) over places, nats."""
    return -mx.mean(mx.sum(exponential(log_p) * log_p, axis=-1))


def measure(draft: Any, target: Any, pairing: Pairing | None, examples: Sequence[Example], rows: int) -> Divergence:
    """Measure a draft on rows, a few at once.

    Args:
        draft: The draft.
        target: The target.
        pairing: Ids to compare; None to measure on the tokens of the rows.
        examples: The rows.
        rows: How many at once.
    """
    nats = entropy = 0.0
    total = 0
    for first in range(0, len(examples), rows):
        batch = batch_of(examples[first : first + rows], pairing is not None)
        number = len(batch.rows)
        if not number:
            continue
        ids, of_row, places = mx.array(batch.draft), mx.array(batch.rows), mx.array(batch.places)
        if pairing is None:
            mean: Any = cross_entropy(draft, ids, of_row, places).item()
        else:
            log_p = log_p_of(target, pairing, batch)
            mean = distribution_cross_entropy(draft, pairing, ids, of_row, places, log_p).item()
            own: Any = entropy_of(log_p).item()
            entropy += own * number
        nats += mean * number
        total += number
    return Divergence(nats / total, None if pairing is None else (nats - entropy) / total, total)
