"""What a pass over several tokens costs, against one over a single token."""

import time
from statistics import median
from typing import Any

import mlx.core as mx

from spectool.runtime.caches.checkpoints import Checkpoints
from spectool.runtime.host.generation import make_prompt_cache

_CONTEXT = 64  # tokens before a timed pass


def pass_cost(model: Any, tokens: int, repeat: int = 15) -> float:
    """Time a pass over ``tokens`` tokens against one over a single token; the ratio of the medians.

    About 1 where verifying is nearly free (a GPU, a Mac); near ``tokens`` where it saves nothing.
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
