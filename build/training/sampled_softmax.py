"""The loss of a step: a softmax over a part of the classes, which stands for the one over all.

The most frequent classes and the step's own targets are all there; a random choice of the others
stands for the rest, weighted up, so that the sum of exponentials is right on average. With few
classes all are there, and the loss is exact.
"""

from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spectool.build.training.vocabulary_classes import Classes

FREQUENT_SHARE = 4 / 7  # of the classes of a step: always there


def choose_classes(
    targets: NDArray[np.int32], classes: Classes, most: int, rng: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Choose the classes that a step's softmax runs over.

    Args:
        targets: Classes that the step predicts, ``[predictions]``.
        classes: All classes.
        most: How many to choose; more where the targets need it, all where 0.
        rng: Random source.

    Returns:
        Classes, int32 ``[chosen]``; what to add to their logits so that the sum of exponentials
        estimates that over all ids without bias, float32 ``[chosen]``.
    """
    number = classes.number
    fixed = np.zeros(number, dtype=bool)
    fixed[: int(most * FREQUENT_SHARE)] = fixed[targets] = fixed[-1] = True
    needed = int(fixed.sum())
    if most and needed > most * 7 // 8:
        most = -(-needed * 8 // 7 // 512) * 512  # in coarse steps: a new number is compiled anew
    if most == 0 or number <= most:
        return np.arange(number, dtype=np.int32), classes.log_sizes
    others = np.flatnonzero(~fixed)
    sample = rng.choice(others, most - needed, replace=False)
    offsets = classes.log_sizes.copy()
    offsets[sample] += np.float32(np.log(len(others) / len(sample)))
    chosen = np.concatenate([np.flatnonzero(fixed), sample]).astype(np.int32)
    return chosen, offsets[chosen]


def loss_of(model: Any, rows: mx.array, chosen: mx.array, offsets: mx.array) -> mx.array:
    """Return the mean loss of a step, nats per token.

    Args:
        model: An mlx-lm Llama model whose vocabulary are classes.
        rows: Classes; all but the first of a row are predicted, int32 ``[rows, length + 1]``.
        chosen: Classes of the softmax, int32 ``[chosen]``.
        offsets: What to add to their logits, ``[chosen]``.
    """
    hidden = model.model(rows[:, :-1]).reshape(-1, model.args.hidden_size)
    table = output_table(model)
    right = mx.sum(hidden * table[rows[:, 1:].reshape(-1)], axis=-1)
    return mx.mean(mx.logsumexp(hidden @ table[chosen].T + offsets, axis=-1) - right)


def output_table(model: Any) -> mx.array:
    """Return the rows that give the logits, ``[classes, hidden]``."""
    table: mx.array = model.model.embed_tokens.weight if model.args.tie_word_embeddings else model.lm_head.weight
    return table
