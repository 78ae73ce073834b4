"""The prompt of the tests of the loop, and what a model writes after it with a drafter."""

from typing import Any

from spectool.runtime.drafters.drafter import Drafter
from spectool.tests.runtime.models import drafted

PROMPT = [7, 8, 9, 7, 8]


def generated(model: Any, drafter: Drafter | None, count: int, **options: Any) -> list[int]:
    return drafted(model, PROMPT, drafter, count, **options)
