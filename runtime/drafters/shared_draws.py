"""Drafts drawn from what both vocabularies share, with what each was drawn from, for rejection sampling."""

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spectool.runtime.decoding.rejection import Draw
from spectool.runtime.decoding.verification import ids
from spectool.runtime.drafters.model_source import ModelSource
from spectool.runtime.translation.protocol import DraftContext


class SharedIds(NamedTuple):
    """The draft id of each target id, on the device.

    Attributes:
        partners: What was taken there, int32 [target ids], -1 where there is none.
        ids: The same, 0 where there is none.
        known: Whether there is one, bool [target ids].
        any: Whether there is any.
    """

    partners: NDArray[np.int32]
    ids: mx.array
    known: mx.array
    any: bool


def draw_shared(
    source: ModelSource,
    context: DraftContext,
    partners: NDArray[np.int32],
    draw: Draw,
    history: Sequence[int],
    limit: int,
) -> tuple[list[int], mx.array | None]:
    """Draw at most ``limit`` tokens that both vocabularies share; all on the device, evaluated once.

    Nothing is drawn for an empty context without BOS, or where nothing is shared.

    Args:
        source: The draft model.
        context: The committed text in draft ids.
        partners: Draft id of each target id, -1 where none; int32 [target ids].
        draw: How to draw.
        history: The committed text in target ids; read where ``draw`` has processors.
        limit: Tokens.

    Returns:
        Target ids and what each was drawn from, float32 [drawn, vocabulary of the target]; None for none.

    Raises:
        RuntimeUnsupported: A context token is outside the model's vocabulary.
    """
    text, same = source.compare(context)
    source.agreed = same
    if source.shared is None or source.shared.partners is not partners:
        known = (partners >= 0) & (partners < source.size)
        on_device = mx.array(np.where(known, partners, 0)), mx.array(known)
        source.shared = SharedIds(partners, *on_device, bool(known.any()))
    shared = source.shared
    if limit <= 0 or not text or not shared.any:
        return [], None
    logits = source.feed_text(text, source.rewind(min(same, len(text) - 1)), 1)
    seen = mx.array(list(history)) if draw.processors else None
    drawn: list[mx.array] = []
    distributions: list[mx.array] = []
    while True:
        token, distribution = draw(mx.where(shared.known, logits[-1:, shared.ids], -mx.inf), seen)
        drawn.append(token)
        distributions.append(distribution)
        if len(drawn) == limit:
            break
        seen = None if seen is None else mx.concatenate([seen, token.astype(seen.dtype)])
        logits = source.run(shared.ids[token])
    tokens = ids(mx.concatenate(drawn))
    source.cache.tokens += partners[tokens[:-1]].tolist()
    return tokens, mx.concatenate(distributions)
