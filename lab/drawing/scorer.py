"""How likely draft ids are after the context and some more ids."""

from collections.abc import Sequence
from typing import Protocol

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spectool.runtime.drafters.drafter import alone
from spectool.runtime.drafters.model_source import ModelSource
from spectool.tokenization.incremental.common_prefix import common_prefix

SCORED = 1024  # most probable draft tokens whose scores a `ModelScorer` reads at each place
_BLOCK = 8  # neighbouring ids that are sifted together
_Ids = NDArray[np.int32]
_Floats = NDArray[np.float64]


class Scorer(Protocol):
    """A draft model that is asked what follows the context and some more ids, a *path*.

    Where there is healing, paths begin before the last id of the context, otherwise after it.
    """

    def begin(self, ids: Sequence[int], healing: bool) -> tuple[int, ...] | None:
        """Read a context; return the path to its end (one id with healing), or None for an empty context."""

    def best(self, path: tuple[int, ...], among: _Ids | None = None) -> tuple[_Ids, _Floats]:
        """The most probable of all draft ids, or of ``among``, and their logits up to a constant."""

    def score(self, path: tuple[int, ...], token: int) -> float:
        """The logit of one id, up to the same constant."""


class ModelScorer:
    """A `ModelSource` as a `Scorer`: its cache follows the paths."""

    def __init__(self, source: ModelSource) -> None:
        self._source = source
        self._root: list[int] = []
        self._known: dict[tuple[int, ...], mx.array] = {}  # logits [size] after paths of this proposal

    def begin(self, ids: Sequence[int], healing: bool) -> tuple[int, ...] | None:
        """Feed the context; one pass gives what follows it and what follows all but its last id."""
        source = self._source
        text = source.follow(ids)
        if not text:
            return None
        logits = alone(source.feeding(healing), source.cache)
        self._root = text[:-1] if len(logits) == 2 else text
        path = tuple(text[len(self._root) :])
        self._known = {(): logits[0], path: logits[-1]}
        return path

    def best(self, path: tuple[int, ...], among: _Ids | None = None) -> tuple[_Ids, _Floats]:
        """The best ids after ``path`` and their scores; a new path takes a pass over what of it is not in the cache."""
        scores = self._known.get(path)
        if scores is None:
            source, text = self._source, [*self._root, *path]
            sure = len(self._root)
            source.cache.rewind(min(sure + common_prefix(source.cache.tokens[sure:], path), len(text) - 1))
            new = text[len(source.cache.tokens) :]
            scores = self._known[path] = source.read(source.cache.feed(mx.array(new)))[-1]
            source.cache.tokens += new
        if among is None:
            ids, scores = _most_probable(scores)
        else:
            allowed = mx.array(among[among < self._source.size])
            places, scores = _most_probable(scores[allowed])
            ids = allowed[places]
        mx.eval(ids, scores)
        return np.array(ids, np.int32), np.array(scores, np.float64)

    def score(self, path: tuple[int, ...], token: int) -> float:
        """The logit of ``token`` after a path that is known."""
        return float(self._known[path][token])


def _most_probable(scores: mx.array) -> tuple[mx.array, mx.array]:
    """The places of the `SCORED` best scores, in any order, and these scores; lazy.

    They are looked for in the blocks of neighbours whose best scores are highest, which is much less work than sorting
    all.
    """
    size = scores.shape[-1]
    if size <= SCORED:
        return mx.arange(size), scores
    blocks = size // _BLOCK
    if blocks <= SCORED:
        places = mx.argpartition(-scores, kth=SCORED - 1)[:SCORED]
        return places, scores[places]
    heads = scores[: blocks * _BLOCK].reshape(blocks, _BLOCK)
    chosen = mx.argpartition(-mx.max(heads, axis=1), kth=SCORED - 1)[:SCORED]
    near = (chosen[:, None] * _BLOCK + mx.arange(_BLOCK)).reshape(-1)
    near = mx.concatenate([near, mx.arange(blocks * _BLOCK, size)])
    places = near[mx.argpartition(-scores[near], kth=SCORED - 1)[:SCORED]]
    return places, scores[places]
