"""Facts that are worked out once for each model or tokenizer, and kept with it."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

_Fact = TypeVar("_Fact")
_Others = ParamSpec("_Others")


def once_per_model(work_out: Callable[Concatenate[Any, _Others], _Fact]) -> Callable[Concatenate[Any, _Others], _Fact]:
    """A function that keeps what ``work_out`` returned with the model, for each argument; a copy is asked again."""

    @wraps(work_out)
    def fact(model: Any, /, *others: _Others.args, **named: _Others.kwargs) -> _Fact:
        facts: dict[Any, tuple[int, _Fact]] = getattr(model, "__dict__", {}).setdefault("_spectool_facts", {})
        key = work_out, others, *named.items()
        owner, value = facts.get(key, (None, None))
        if owner != id(model):
            value = work_out(model, *others, **named)
            facts[key] = id(model), value
        return value  # type: ignore[return-value]

    return fact
