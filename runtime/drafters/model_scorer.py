"""A draft model that is asked how likely draft ids are: the best of them come from the device, and nothing else."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spectool.runtime.decoding.drafter import accepted_length
from spectool.runtime.translation.protocol import DraftContext

WIDTH = 1024  # draft tokens that are known at each place: the most probable ones
_BLOCK = 8  # neighbouring ids that are sifted together
_Ids = NDArray[np.int32]
_Floats = NDArray[np.float64]


class ModelScorer:
    """A `ModelSource` as a `Scorer`: its cache follows the paths."""

    def __init__(self, source: Any) -> None:
        """Ask the model of ``source``, a `ModelSource` (which makes scorers, so that its name is not known here)."""
        self._source = source
        self._root: list[int] = []
        self._known: dict[tuple[int, ...], mx.array] = {}  # logits [size] after paths of this proposal

    def begin(self, ids: Sequence[int], kept: int, healing: bool) -> tuple[int, ...] | None:
        """Feed the context; one pass gives what follows it and what follows all but its last id."""
        source = self._source
        text = source.compare(DraftContext(ids, kept))
        if not text:
            return None
        logits = source.feed_text(text, healing)
        self._root = text[:-1] if len(logits) == 2 else text
        path = tuple(text[len(self._root) :])
        self._known = {(): logits[0], path: logits[-1]}
        return path

    def best(self, path: tuple[int, ...], among: _Ids | None = None) -> tuple[_Ids, _Floats]:
        """The best ids after ``path``; where that is new, a pass feeds what of it is not in the cache."""
        scores = self._known.get(path)
        if scores is None:
            source, text = self._source, [*self._root, *path]
            sure = len(self._root)
            source.rewind(min(sure + accepted_length(source.cache.tokens[sure:], path), len(text) - 1))
            new = text[len(source.cache.tokens) :]
            scores = self._known[path] = source.run(mx.array(new))[-1]
            source.cache.tokens += new
        if among is None:
            ids, scores = _best(scores)
        else:
            allowed = mx.array(among[among < self._source.size])
            places, scores = _best(scores[allowed])
            ids = allowed[places]
        mx.eval(ids, scores)
        return np.array(ids, np.int32), np.array(scores, np.float64)

    def score(self, path: tuple[int, ...], token: int) -> float:
        """The logit of ``token`` after a path that is known."""
        return float(self._known[path][token])


def _best(scores: mx.array) -> tuple[mx.array, mx.array]:
    """The places of the `WIDTH` best scores, in any order, and these; lazy.

    The best are found in those blocks of neighbours whose best ones are: much less than sorting all of them.
    """
    size = scores.shape[-1]
    if size <= WIDTH:
        return mx.arange(size), scores
    blocks = size // _BLOCK
    if blocks <= WIDTH:
        places = mx.argpartition(-scores, kth=WIDTH - 1)[:WIDTH]
        return places, scores[places]
    heads = scores[: blocks * _BLOCK].reshape(blocks, _BLOCK)
    chosen = mx.argpartition(-mx.max(heads, axis=1), kth=WIDTH - 1)[:WIDTH]
    near = (chosen[:, None] * _BLOCK + mx.arange(_BLOCK)).reshape(-1)
    near = mx.concatenate([near, mx.arange(blocks * _BLOCK, size)])
    places = near[mx.argpartition(-scores[near], kth=WIDTH - 1)[:WIDTH]]
    return places, scores[places]
