"""One draft against the target on the passages of one task, place by place.

With one vocabulary, over all ids. With two and an alignment, at the places where both tokenizations have a boundary:
divergences over the ids that both have, both distributions renormalised over them; acceptance and misfits over the
target's whole vocabulary, where the draft gives nothing to ids that it does not have, as it is when it drafts from
the shared ids alone. Misfits take the text's own next token u for the task's distribution: r = 1 - (its probability).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.nn.layers.activations import log_softmax
from numpy.typing import NDArray

from spectool.build.training.tuning.divergence import log_q_of, place_by_place
from spectool.build.training.tuning.examples import Batch, Example, batch_of
from spectool.build.training.tuning.pairing import Pairing
from spectool.measure.fairness.formulas import ratio
from spectool.runtime.draft_length.cost_model import geometric_tokens

_AT_ONCE = 2**24  # logits of one model


@dataclass(frozen=True, slots=True)
class Places:
    """What was measured at places of rows, each array ``[places]``.

    Attributes:
        row: Which row.
        acceptance: alpha(s) = sum_x min(p(x), q(x)) over the target's vocabulary.
        acceptance_shared: The same over the ids that both have, renormalised.
        cross_entropy: -sum_x p(x) log q(x) over these, nats.
        kl: KL(p || q) over these, nats.
        draft_misfit: 1 - q(next token of the text).
        target_misfit: 1 - p(next token of the text).
        counted: Number of places of the draft, compared or not.
    """

    row: NDArray[np.int64]
    acceptance: NDArray[np.float64]
    acceptance_shared: NDArray[np.float64]
    cross_entropy: NDArray[np.float64]
    kl: NDArray[np.float64]
    draft_misfit: NDArray[np.float64]
    target_misfit: NDArray[np.float64]
    counted: int

    def mean_by_row(self, values: NDArray[np.float64]) -> tuple[float, float]:
        """Return the mean of ``values`` ``[places]``, and its standard error over rows."""
        return ratio(np.bincount(self.row, values).tolist(), np.bincount(self.row).tolist())

    def figures(self, gamma: int) -> dict[str, float]:
        """Return means over places; see the module for what they are over."""
        acceptance, error = self.mean_by_row(self.acceptance)
        return {
            "rows": len(np.unique(self.row)),
            "places": len(self.row),
            "share": len(self.row) / self.counted,
            "acceptance": acceptance,
            "acceptance_error": error,
            "acceptance_shared": float(self.acceptance_shared.mean()),
            "cross_entropy": float(self.cross_entropy.mean()),
            "kl": max(0.0, float(self.kl.mean())),
            "draft_misfit": float(self.draft_misfit.mean()),
            "target_misfit": float(self.target_misfit.mean()),
            "tokens_by_place": fmean(geometric_tokens(a, gamma) for a in self.acceptance.tolist()),
        }


def compare(
    draft: Any,
    target: Any,
    pairing: Pairing,
    examples: Sequence[Example],
    on_rows: Callable[[int], object] = lambda rows: None,
) -> Places:
    """Measure a draft on rows.

    Args:
        draft: The draft.
        target: The target.
        pairing: Ids to compare.
        examples: The rows, at least one with a place to compare.
        on_rows: Called with the number of rows after every few.
    """
    longest = max(max(len(example.draft), len(example.target)) for example in examples)
    vocabulary = int(target(mx.zeros((1, 1), dtype=mx.int32)).shape[-1])  # never computed
    together = max(1, _AT_ONCE // (longest * vocabulary))
    rows, columns = [], []
    for first in range(0, len(examples), together):
        batch = batch_of(examples[first : first + together], paired=True)
        if len(batch.rows):
            rows.append(first + batch.rows.astype(np.int64))
            columns.append(np.array(_at_places(draft, target, pairing, batch), dtype=np.float64))
        on_rows(len(examples[first : first + together]))
    # Rows without a place to compare do not count.
    row = np.unique(np.concatenate(rows), return_inverse=True)[1]
    cross_entropy, entropy, shared, overlap, of_draft, of_target = np.concatenate(columns, axis=1)
    counted = int(sum(example.counted.sum() for example in examples))
    return Places(row, overlap, shared, cross_entropy, cross_entropy - entropy, 1 - of_draft, 1 - of_target, counted)


def _at_places(draft: Any, target: Any, pairing: Pairing, batch: Batch) -> mx.array:
    """Return the figures of a batch, ``[6, places]``: those of `place_by_place`, then as `compare` takes them apart."""
    ids, rows, at = mx.array(batch.target), mx.array(batch.rows), mx.array(batch.at)
    logits = target(ids)[rows, at].astype(mx.float32)
    log_p, log_q = pairing.of_target(logits), log_q_of(draft, pairing, batch)
    figures = place_by_place(log_p, log_q)
    p, q = mx.exp(log_p), mx.exp(log_q)
    overlap = figures[2]
    if pairing.target is not None:
        p = mx.exp(log_softmax(logits))
        # Several ids of the draft may be one of the target's.
        q = mx.zeros(p.T.shape).at[pairing.target].add(q.T).T  # rows are added three times as fast as columns
        overlap = mx.sum(mx.minimum(p, q), axis=-1)
    following = ids[rows, at + 1][:, None]
    of_draft, of_target = (mx.take_along_axis(values, following, axis=-1)[:, 0] for values in (q, p))
    return mx.concatenate([figures, mx.stack([overlap, of_draft, of_target])])
