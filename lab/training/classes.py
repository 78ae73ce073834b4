"""Classes of ids, and the loss of a step: a softmax over some of the classes that estimates the one over all.

A model with 152,000 ids of which 13,000 occur in the text does not need 152,000 rows while it is trained. Rare ids
share one row and are equally likely, which is a softmax over all ids with tied rows: the logit of the class plus the
logarithm of its size stands for all of them. So the model is trained over the classes and stored over the ids, with the
same probabilities.

The softmax of a step has the most frequent classes, the step's own targets, and a random sample of the others. The
sample is weighted up, so the sum of exponentials is right on average. With few classes, all of them are used and the
loss is exact.
"""

from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

_FREQUENT_SHARE = 4 / 7  # of the classes of a step that are the most frequent ones


class Classes(NamedTuple):
    """The class of every id."""

    of_id: NDArray[np.int32]  # class of each id, ordered by falling frequency, with the rare ids' last; int32 ``[ids]``
    common: int  # ids that have a class of their own
    log_sizes: NDArray[np.float32]  # logarithm of the number of ids in each class, float32 ``[classes]``

    @property
    def number(self) -> int:
        """Number of classes."""
        return len(self.log_sizes)

    @property
    def rare(self) -> int:
        """Ids that share the last class; 0 where there is no such class."""
        return len(self.of_id) - self.common


def classes_of(stream: NDArray[np.int32], ids: int, min_count: int) -> Classes:
    """The classes of ``ids`` token ids: each has its own that occurs ``min_count`` times in a stream ``[tokens]``."""
    counts = np.bincount(stream, minlength=ids)
    by_count = np.argsort(-counts, kind="stable")
    common = by_count[counts[by_count] >= min_count]
    of_id = np.full(ids, len(common), dtype=np.int32)
    of_id[common] = np.arange(len(common), dtype=np.int32)
    return Classes(of_id, len(common), np.log(np.bincount(of_id)).astype(np.float32))


def choose_classes(
    targets: NDArray[np.int32], classes: Classes, most: int, rng: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Choose ``most`` classes for the softmax of a step; more where its ``targets`` need them, all where ``most`` is 0.

    Returns:
        Classes, int32 ``[chosen]``, and what to add to their logits so that the sum of exponentials is an unbiased
        estimate of that over all ids, float32 ``[chosen]``.
    """
    number = classes.number
    fixed = np.zeros(number, dtype=bool)
    fixed[: int(most * _FREQUENT_SHARE)] = fixed[targets] = fixed[-1] = True
    needed = int(fixed.sum())
    if most and needed > most * 7 // 8:
        most = -(-needed * 8 // 7 // 512) * 512  # in coarse steps, because MLX compiles each number of classes
    if most == 0 or number <= most:
        return np.arange(number, dtype=np.int32), classes.log_sizes
    others = np.flatnonzero(~fixed)
    sample = rng.choice(others, most - needed, replace=False)
    offsets = classes.log_sizes.copy()
    offsets[sample] += np.float32(np.log(len(others) / len(sample)))
    chosen = np.concatenate([np.flatnonzero(fixed), sample]).astype(np.int32)
    return chosen, offsets[chosen]


def loss_of(model: Any, rows: mx.array, chosen: mx.array, offsets: mx.array) -> mx.array:
    """The mean loss of a step, nats per token.

    The vocabulary of the Llama ``model`` consists of classes, as do the rows ``[rows, length + 1]``, of which all but
    the first of each are predicted. ``chosen`` and ``offsets`` are from `choose_classes`.
    """
    hidden = model.model(rows[:, :-1]).reshape(-1, model.args.hidden_size)
    table = model.model.embed_tokens.weight if model.args.tie_word_embeddings else model.lm_head.weight
    right = mx.sum(hidden * table[rows[:, 1:].reshape(-1)], axis=-1)
    return mx.mean(mx.logsumexp(hidden @ table[chosen].T + offsets, axis=-1) - right)
