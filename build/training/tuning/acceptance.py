"""The acceptance proxy of s-CDF's authors (appendix D.1): short drafts, judged in one pass of the target.

From the beginnings of held-out rows the draft goes on greedily for gamma tokens; the target scores the same
places, and a token is accepted while u < min(1, p/q). The rate is accepted tokens, up to the first that is not,
over drafted ones. It is no acceptance rate of a decoding: a draft that is sure of nothing has a small q, so that p/q is
large, and can do better by it the less it knows. `divergence.measure` gives the rate of rejection sampling itself.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spectool.build.training.examples.pairing import Pairing
from spectool.runtime.host.generation import make_prompt_cache

GAMMA = 5
ROWS = 32  # in a pass
_CUTS = (1 / 8, 1 / 4, 1 / 2, 3 / 4)  # of the longest row: where drafts begin


def beginnings(rows: Sequence[NDArray[np.int32]], longest: int) -> list[NDArray[np.int32]]:
    """Return beginnings of rows, those of one length together, int32 ``[rows, length]`` each."""
    lengths = sorted({max(1, round(cut * longest)) for cut in _CUTS})
    groups = [[row[:length] for row in rows if len(row) >= length] for length in lengths]
    return [np.stack(group) for group in groups if group]


def acceptance(
    draft: Any, target: Any, pairing: Pairing, prompts: Sequence[NDArray[np.int32]], seed: Sequence[int]
) -> float:
    """Return accepted over drafted tokens; the same ``seed`` tosses the same coins.

    Args:
        draft: The draft.
        target: The target.
        pairing: Of two models with one vocabulary.
        prompts: From `beginnings`.
        seed: Seeds the coins.
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
    """Return p/q of the draft's own best tokens, ``[rows, gamma]``."""
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
    """Return a cache of ``prompt`` without its last token; the logits there are never computed."""
    cache: list[Any] = make_prompt_cache(model)
    if prompt.shape[1] > 1:
        model(prompt[:, :-1], cache=cache)
    return cache
