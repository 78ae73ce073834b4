"""Timing passes of a model by their rows and their context.

The context is not read but made up: what a pass costs depends on how many tokens the cache holds, not on which.
"""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import mlx.core as mx

from spectool.runtime.caches.leaves import flatten
from spectool.runtime.groups.mirrored import mirrored
from spectool.runtime.groups.rank_0 import forward, make_prompt_cache
from spectool.runtime.mlx_lm_compat import KVCache, RotatingKVCache
from spectool.runtime.sampling.token_ids import vocabulary_size

DEPTHS = (64, 1024)  # tokens of context: a short text, and one whose cache is felt
ROWS = (1, 2, 4, 8, 17, 3, 5, 6, 7, 12, 32)  # where passes are slow, the first of these
_CHAINED = 3  # plain passes that are timed together, each begun before the token of the one before it is read
_SHALLOW = 0.7  # of the time, when the short context should be done
_FEW = 32  # plain passes: where there is time for no more, the long context is left out
_NEEDED = 3  # sizes that are timed even if there is no time; of a long context, one less
_REPEATABLE = 1_000_003  # a prime: token ids that are spread over the vocabulary


class Passes:
    """Passes of a model after made-up tokens, which grow its cache a little each time."""

    def __init__(self, model: Any, depth: int) -> None:
        """Begin after ``depth`` tokens."""
        self._model, self._cache = model, make_prompt_cache(model)
        self._vocabulary, self._fed = vocabulary_size(model), 0
        self.run(1)
        _lengthen(self._cache, depth - 1)
        self.run(1)

    def run(self, rows: int) -> float:
        """Seconds of a pass over ``rows`` tokens."""
        tokens = self._tokens(rows)
        began = perf_counter()
        mx.eval(forward(self._model, tokens, self._cache))
        return perf_counter() - began

    def run_plain(self) -> float:
        """Seconds of a plain pass of several, each begun before the token of the one before it is read if it can be."""
        token, began = self._tokens(1), perf_counter()
        for _ in range(_CHAINED):
            following = mx.argmax(forward(self._model, token, self._cache)[:, -1:], axis=-1)
            mx.async_eval(following)  # type: ignore[no-untyped-call]
            mx.eval(token)
            token = following
        mx.eval(token)
        return (perf_counter() - began) / _CHAINED

    def _tokens(self, count: int) -> mx.array:
        ids = [(self._fed + at) * _REPEATABLE % self._vocabulary for at in range(count)]
        self._fed += count
        return mx.array([ids], dtype=mx.int32)


def time_passes(
    model: Any, seconds: Callable[[float], float], progress: Callable[[float], object] = lambda share: None
) -> tuple[dict[int, dict[int, float]], dict[int, float], float]:
    """Seconds of passes by context and rows, of plain passes by context, and how far the two shortest are apart.

    That is how many times as long the second one took, in the size where it is most: where nothing disturbs them, 1.

    The least of several times is taken, because other programs only ever make a pass longer, and sizes take turns.
    Sizes that there is no time to measure twice are left out. What the first pass of a size takes longer than the
    second is no part of the time, because it may read weights and compile kernels.

    Args:
        model: An mlx-lm model.
        seconds: The time for all of it, given the seconds of a plain pass.
        progress: Called with the share of the time that has passed.
    """
    began, budget = perf_counter(), 0.0
    found, plain = dict[int, dict[int, list[float]]](), dict[int, list[float]]()
    for depth in DEPTHS:
        opened, passes = perf_counter(), Passes(model, depth)
        ready, usual = perf_counter(), passes.run_plain()
        began += max(0.0, ready - opened - 2 * usual)
        budget = budget or seconds(usual)
        share = 1.0 if found or budget < _FEW * usual else _SHALLOW
        needed = _NEEDED - bool(found)
        plain[depth], times = [usual], dict[int, list[float]]()
        for rows in ROWS:
            expected = max(map(min, times.values()), default=usual) * max(1.0, rows / max(times, default=1))
            if len(times) < needed or perf_counter() + 2 * expected < began + share * budget:
                times[rows] = [passes.run(rows), passes.run(rows)]
                began += max(0.0, times[rows][0] - times[rows][1])
                progress(min(1.0, (perf_counter() - began) / budget))
        while perf_counter() + _CHAINED * min(plain[depth]) < began + share * budget:
            plain[depth].append(passes.run_plain())
            if perf_counter() + sum(map(min, times.values())) < began + share * budget:
                for rows, taken in times.items():
                    taken.append(passes.run(rows))
            progress(min(1.0, (perf_counter() - began) / budget))
        found[depth] = times
        if share == 1.0:
            break
    repeated = [*plain.values(), *(each for times in found.values() for each in times.values())]
    two = [sorted(each)[:2] for each in repeated if len(each) > 1]
    least = {depth: {rows: min(times[rows]) for rows in sorted(times)} for depth, times in found.items()}
    apart = max((following / shortest for shortest, following in two if shortest), default=1.0)
    return least, {depth: min(each) for depth, each in plain.items()}, apart


@mirrored
def _lengthen(cache: Sequence[Any], tokens: int) -> None:
    """Add made-up tokens to the caches of attention. What other caches cost does not depend on their number."""
    for leaf in flatten(cache):
        if isinstance(leaf, KVCache | RotatingKVCache) and leaf.keys is not None and tokens > 0:
            keys, values = (mx.repeat(each[:, :, :1], tokens, axis=2) for each in (leaf.keys, leaf.values))
            leaf.update_and_fetch(keys, values)
    mx.eval([leaf.state for leaf in flatten(cache)])
