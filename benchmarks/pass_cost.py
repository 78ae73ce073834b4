"""What a pass over several tokens costs, in passes over one: several scripts print it next to their speeds."""

import time
from statistics import median
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from spectool.runtime.caches.rewinding import Checkpoints

_CONTEXT = 64  # tokens before a timed pass


def pass_cost(model: Any, tokens: int, repeat: int = 15) -> float:
    """Time of a pass over ``tokens`` tokens / time of a pass over one, as the ratio of the medians.

    It is about 1 if verifying is nearly free, as on a GPU or a Mac, and near ``tokens`` if it saves nothing.
    """
    cache = make_prompt_cache(model)
    checkpoints = Checkpoints(cache)
    checkpoints.mark(_CONTEXT)
    mx.eval(model(mx.ones((1, _CONTEXT), dtype=mx.int32), cache=cache))
    times: dict[int, list[float]] = {1: [], tokens: []}
    for _ in range(repeat):
        for count, samples in times.items():
            checkpoints.mark(count)
            started = time.perf_counter()
            mx.eval(model(mx.ones((1, count), dtype=mx.int32), cache=cache))
            samples.append(time.perf_counter() - started)
            checkpoints.rewind(_CONTEXT)
    return median(times[tokens]) / median(times[1])
