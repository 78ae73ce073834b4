"""One draft against the target on the passages of one task, place by place.

With one vocabulary, every place of the text and all ids count. With two and an alignment, only places count where both
tokenizations have a boundary. There, divergences are over the ids that both have, with both distributions renormalised.
Acceptance and misfits are over the target's whole vocabulary; the draft gives no probability to ids that it lacks, as
when it drafts from the shared ids alone. A misfit is r = 1 - p(u), where the text's own next token u stands for the
distribution of the task.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import mlx.core as mx
import numpy as np
import pandas as pd
from mlx.nn.layers.activations import log_softmax

from spectool.lab.fairness.formulas import ratio
from spectool.lab.paper_tables.cost_model import geometric_tokens
from spectool.lab.tuning.divergence import Pairing, log_q_of, place_by_place
from spectool.lab.tuning.examples import Example, Padded, batch_of

_AT_ONCE = 2**24  # logits of one model


@dataclass(frozen=True, eq=False)
class Places:
    """What was measured at the places of some rows."""

    # A data frame with a line for each place:
    #     row
    #     acceptance                    alpha(s) = sum_x min(p(x), q(x)) over the target's vocabulary
    #     acceptance_shared             the same over the ids that both have, renormalised
    #     cross_entropy, kl             -sum_x p(x) log q(x) and KL(p || q) over these, nats
    #     draft_misfit, target_misfit   1 - the probability of the text's own next token
    #     a temperature, float          the acceptance where both models have it
    at: Any
    counted: int  # number of places of the draft, compared or not

    def figures(self, gamma: int) -> dict[str, Any]:
        """Means over places, the standard error of the acceptance over rows, and fitness and acceptance by row."""
        rows = self.at.groupby("row").acceptance
        acceptance, error = ratio(rows.sum().tolist(), rows.size().tolist())
        means = self.at.drop(columns=["row", "acceptance"]).mean().to_dict()
        by_row = self.at.groupby("row")[["draft_misfit", "acceptance"]].mean()
        return {
            "rows": rows.ngroups,
            "places": len(self.at),
            "share": len(self.at) / self.counted,
            "by_temperature": {f"{each:g}": means.pop(each) for each in list(means) if isinstance(each, float)},
            "examples": [[1 - misfit, accepted] for misfit, accepted in by_row.to_numpy().tolist()],
            **means,
            "acceptance": acceptance,
            "acceptance_error": error,
            "kl": max(0.0, means["kl"]),
            "tokens_by_place": fmean(geometric_tokens(alpha, gamma) for alpha in self.at.acceptance.tolist()),
        }


def compare(
    draft: Any,
    target: Any,
    pairing: Pairing,
    examples: Sequence[Example],
    on_rows: Callable[[int], object] = lambda rows: None,
    temperatures: Sequence[float] = (),
) -> Places:
    """Measure a draft on rows, at least one of which has a place to compare.

    ``on_rows`` is called with the number of rows after each batch. The acceptance is also measured with both models at
    each of the ``temperatures``; 0 compares their most probable tokens.
    """
    longest = max(max(len(example.draft), len(example.target)) for example in examples)
    vocabulary = int(target(mx.zeros((1, 1), dtype=mx.int32)).shape[-1])  # never computed
    together = max(1, _AT_ONCE // (longest * vocabulary))
    rows, columns = [], []
    for first in range(0, len(examples), together):
        batch = batch_of(examples[first : first + together])
        if len(batch.rows):
            rows.append(first + batch.rows.astype(np.int64))
            columns.append(np.array(_at_places(draft, target, pairing, batch, temperatures), dtype=np.float64))
        on_rows(len(examples[first : first + together]))
    cross_entropy, entropy, shared, of_draft, of_target, overlap, *softened = np.concatenate(columns, axis=1)
    found: dict[str | float, Any] = {
        "row": np.concatenate(rows),
        **{"acceptance": overlap, "acceptance_shared": shared},
        **{"cross_entropy": cross_entropy, "kl": cross_entropy - entropy},
        **{"draft_misfit": 1 - of_draft, "target_misfit": 1 - of_target},
        **dict(zip(temperatures, softened, strict=True)),
    }
    return Places(pd.DataFrame(found), sum(len(example.at) for example in examples))


def _at_places(draft: Any, target: Any, pairing: Pairing, batch: Padded, temperatures: Sequence[float]) -> mx.array:
    """The figures of a batch, ``[6 + temperatures, places]``, in the order of their names in `compare`."""
    ids, rows, at = mx.array(batch.target), mx.array(batch.rows), mx.array(batch.at)
    logits = target(ids)[rows, at].astype(mx.float32)
    shared_p, log_q = pairing.of_target(logits), log_q_of(draft, pairing, batch)
    log_p = shared_p if pairing.target is None else log_softmax(logits)

    def both(temperature: float) -> tuple[mx.array, mx.array]:
        p, q = _softened(log_p, temperature), _softened(log_q, temperature)
        if pairing.target is not None:
            # Rows are added three times as fast as columns.
            q = mx.zeros(p.T.shape).at[pairing.target].add(q.T).T
        return p, q

    p, q = both(1)
    following = ids[rows, at + 1][:, None]
    of_draft, of_target = (mx.take_along_axis(values, following, axis=-1)[:, 0] for values in (q, p))
    overlaps = [mx.sum(mx.minimum(*pair), axis=-1) for pair in ((p, q), *map(both, temperatures))]
    return mx.concatenate([place_by_place(shared_p, log_q), mx.stack([of_draft, of_target, *overlaps])])


def _softened(log_p: mx.array, temperature: float) -> mx.array:
    """The probabilities at a temperature; at 0 the most probable id has all."""
    if not temperature:
        return (mx.arange(log_p.shape[-1]) == mx.argmax(log_p, axis=-1, keepdims=True)).astype(mx.float32)
    return mx.softmax(log_p / temperature, axis=-1)
