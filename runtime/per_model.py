"""Facts that are worked out once for each model, and kept with it."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

_Fact = TypeVar("_Fact")


def once_per_model(work_out: Callable[[Any], _Fact]) -> Callable[[Any], _Fact]:
    """A function that keeps what ``work_out`` returned with the model; a copy of the model is asked again."""

    @wraps(work_out)
    def fact(model: Any) -> _Fact:
        facts: dict[Any, tuple[int, _Fact]] = getattr(model, "__dict__", {}).setdefault("_spectool_facts", {})
        owner, value = facts.get(work_out, (None, None))
        if owner != id(model):
            value = work_out(model)
            facts[work_out] = id(model), value
        return value  # type: ignore[return-value]

    return fact
