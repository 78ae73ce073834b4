"""Facts that are worked out once for each model."""

import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar

_Fact = TypeVar("_Fact")


def once_per_model(work_out: Callable[[Any], _Fact]) -> Callable[[Any], _Fact]:
    """A function that remembers what ``work_out`` returned for each model that is still there.

    Models are dictionaries, which have no hash, so they are known by their id.
    """
    known: dict[int, tuple[weakref.ref[Any], _Fact]] = {}

    @wraps(work_out)
    def fact(model: Any) -> _Fact:
        key = id(model)
        found = known.get(key)
        if found is not None and found[0]() is model:
            return found[1]
        value = work_out(model)
        with suppress(TypeError):  # an object that takes no weak references
            known[key] = weakref.ref(model, lambda _: known.pop(key, None)), value
        return value

    return fact
