"""The prompt of the tests of the loop, and what a model writes after it with a drafter."""

from typing import Any

import mlx.core as mx

from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.drafters.drafter import Drafter

PROMPT = [7, 8, 9, 7, 8]


def generated(model: Any, drafter: Drafter | None, count: int, **options: Any) -> list[int]:
    options = {"num_draft_tokens": 8, **options}
    steps = generate_step(mx.array(PROMPT), model, drafter=drafter, max_tokens=count, **options)
    return [token for token, _, _ in steps]
