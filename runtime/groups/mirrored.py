"""Objects that all ranks have, and operations on them that all ranks do."""

import copy
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

FAILED = "failed"  # in place of the result of an operation
operations: set[str] = set()  # names of what other ranks do when rank 0 names it
_P = ParamSpec("_P")
_R = TypeVar("_R")


class Spread:
    """An object that all ranks have, once it belongs to a group.

    Attributes:
        leader: The `Leader` that records what is done to it; None without a group, and on the ranks that repeat.
        number: What it is called in messages.
    """

    leader: Any = None
    number: int | None = None


class SpreadCache(list[Any], Spread):
    """A prompt cache of a spread model: on each rank, the entries of its own layers or heads."""

    def __init__(self, entries: Sequence[Any], leader: Any = None, size: int | None = None) -> None:
        """A cache that the other ranks make, with a window of ``size`` tokens, once it is used."""
        super().__init__(entries)
        self.leader, self.size = leader, size

    def __deepcopy__(self, memo: dict[int, Any]) -> "SpreadCache":
        copied = SpreadCache(copy.deepcopy(list(self), memo))
        if self.leader is not None:
            self.leader.record("copy", self.leader.named(self), self.leader.added(copied))
        return copied


def name_of(operation: Callable[..., Any]) -> str:
    """What an operation is called in messages: where it is."""
    return f"{operation.__module__}:{operation.__qualname__}"


def repeatable(work: Callable[_P, _R]) -> Callable[_P, _R]:
    """Work that rank 0 may name."""
    operations.add(name_of(work))
    return work


def mirrored(operation: Callable[_P, _R]) -> Callable[_P, _R]:
    """An operation on caches that the other ranks repeat, if one of its arguments belongs to a group."""
    name = name_of(repeatable(operation))

    @wraps(operation)
    def run(*arguments: _P.args, **named: _P.kwargs) -> _R:
        for each in arguments:
            if isinstance(each, Spread) and (leader := each.leader) is not None:
                break
        else:
            return operation(*arguments, **named)
        outcome: Any = FAILED
        with uninterrupted():
            told = [leader.named(each) if isinstance(each, Spread) else each for each in arguments]
            try:
                result = operation(*arguments, **named)
                outcome = result if isinstance(result, int) else None
            finally:
                leader.record(name, told, named, outcome)
        return result

    return run


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back while ranks meet: afterwards they are at the same place again."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *signal_: came.append(signal_))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            raise KeyboardInterrupt
