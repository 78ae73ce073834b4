"""The other ranks: they repeat what rank 0 tells."""

import copy
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import reduce
from importlib import import_module
from typing import Any

import mlx.core as mx

from spectool import RuntimeUnsupported, SpectoolError
from spectool.runtime import mlx_lm_compat
from spectool.runtime.groups.link import Link, group_now, group_of
from spectool.runtime.groups.mirrored import FAILED, SpreadCache, operations
from spectool.runtime.per_model import once_per_model

_CLEAR_EVERY = 256  # passes between two mx.clear_cache()
_MODULES = (  # of the operations that rank 0 may name
    "spectool.measure.bench.run",
    "spectool.runtime.caches.own",
    "spectool.runtime.caches.rewinding",
    "spectool.runtime.caches.shared",
    "spectool.runtime.policy.measuring",
)


@once_per_model
def _follower_of(model: Any, until_stopped: bool) -> "Follower | None":
    group = group_of(model)
    return Follower(model, group, until_stopped) if group is not None and group.rank() else None


def follower_of(model: Any, until_stopped: bool = False) -> "Follower | None":
    """What repeats the work of rank 0 on the other ranks of a spread model; None elsewhere.

    It follows one call after the other, or ``until_stopped`` all that rank 0 does until its process ends.

    Raises:
        RuntimeUnsupported: The model was spread after it had been used here.
    """
    if (group_now(model) is None) != (group_of(model) is None):
        raise RuntimeUnsupported("the model was spread over processes after its first use. Load it again and spread it")
    return _follower_of(model, until_stopped)


class Follower(Link):
    """Another rank, which repeats what rank 0 tells."""

    def __init__(self, model: Any, group: Any, until_stopped: bool) -> None:
        self._objects: dict[int, Any] = {}
        self._names: list[str] = []
        # The cache that the caller gave, and the one that has its entries.
        self._given: list[Any] | None = None
        self._adopted: SpreadCache | None = None
        self._passes = 0
        super().__init__(model, group, until_stopped)

    def follow(self) -> None:
        """Repeat what rank 0 does until its process ends."""
        with _interruptible(), mlx_lm_compat.wired_limit(self._model, [mx.default_stream(mx.default_device())]):
            for name, *_ in self._events():
                if name == "stop":
                    self._watch.expects_end = True
                    return

    def tokens(self, cache: list[Any] | None) -> Generator[tuple[int, mx.array, bool], None, None]:
        """Follow a call that all ranks make, such as `generate_step`: what it yields there is yielded here.

        Log-probabilities are those of this rank's own logits, before processors and grammar.
        """
        self._given = cache
        self.settled = False
        events = self._events()

        def steps() -> Generator[tuple[int, mx.array, bool], None, None]:
            ended = False
            try:
                yield 0, mx.array(0), False  # taken below
                for name, *told in events:
                    if ended := name == "ended":
                        if told[0] is not None:
                            raise SpectoolError(told[0])
                        return
                    if name == "told":
                        tokens, accepted, logits = told
                        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
                        for row, token in enumerate(tokens):
                            yield token, logprobs[row], row < accepted
            finally:
                if not ended:
                    next((name for name, *_ in events if name == "ended"), None)
                if self._given is not None and self._adopted is not None:
                    self._given[:], self._adopted = self._adopted, None  # entries may have been quantised

        name, *told = next(events)
        if name == "ended":
            raise RuntimeUnsupported(told[0])
        begun = steps()
        next(begun)
        return begun

    def _events(self) -> Iterator[list[Any]]:
        """Do what rank 0 tells, and yield what concerns the caller after the pass that came with it."""
        logits = None
        while True:
            events: list[list[Any]] = []
            with self._watch.working():
                for number, *rest in self._received():
                    if isinstance(number, str):
                        self._names.append(number)
                        continue
                    name = self._names[number]
                    if name == "told":
                        tokens, accepted, rows = rest[0]
                        events.append([name, tokens, accepted, logits[0, -rows:]])  # type: ignore[index]
                    elif name == "rest":
                        self._watch.sleep()
                    elif name in ("opened", "ended", "stop"):
                        events.append([name, *rest[0]])
                    elif name == "pass":
                        logits = self._repeat_pass(*rest[0])
                    else:
                        self._repeat(name, *rest)
            yield from events

    def _repeat_pass(self, tokens: list[list[int]], named: str | None, logits: bool) -> mx.array | None:
        cache = None if named is None else self._objects[int(named)]
        self._passes += 1
        if not logits or self._passes % _CLEAR_EVERY == 0:
            mx.clear_cache()
        try:
            return self._pass(tokens, cache, logits)
        except RuntimeUnsupported:  # on rank 0 as well
            return None

    def _repeat(self, name: str, arguments: list[Any], result: Any = None, named: dict[str, Any] | None = None) -> None:
        """An operation that is no pass."""
        objects = self._objects
        match name:
            case "make":
                objects[arguments[0]] = SpreadCache(mlx_lm_compat.make_prompt_cache(self._model, arguments[1]))
            case "copy":
                objects[arguments[1]] = copy.deepcopy(objects[int(arguments[0])])
            case "given":
                if self._given is None:
                    raise SpectoolError("rank 0 was given a prompt cache, and this rank was not. Give one to all")
                objects[arguments[0]] = self._adopted = SpreadCache(self._given)
            case "work":
                work, named_cache, further, named = arguments
                getattr(*_found(work))(self._model, objects[int(named_cache)], *further, **named)
            case "drop":
                del objects[arguments[0]]
            case "check":
                if arguments[0] != self._digest:
                    raise RuntimeError("this rank does not hold the tokens that rank 0 holds")
            case _:
                self._repeat_mirrored(name, arguments, result, named or {})

    def _repeat_mirrored(self, name: str, arguments: list[Any], result: Any, named: dict[str, Any]) -> None:
        owner, last = _found(name)
        if last == "__init__":
            self._objects[int(arguments[0])] = owner.__new__(owner)
        given = [self._objects[int(each)] if isinstance(each, str) else each for each in arguments]
        try:
            found = getattr(owner, last)(*given, **named)
        except Exception:
            if result != FAILED:
                raise
        else:
            if result == FAILED or (result is not None and found != result):
                raise RuntimeUnsupported(
                    f"{name}: rank 0 has {result}, and this rank {found}. In a pipeline, all parts of the model need "
                    "layers of the same kinds"
                )


def _found(name: str) -> tuple[Any, str]:
    """Where an operation is, and what it is called there.

    Raises:
        SpectoolError: It is none of those that rank 0 may name.
    """
    module, _, path = name.partition(":")
    if module in _MODULES:
        import_module(module)
    if name not in operations:
        raise SpectoolError(f"rank 0 asks for {name!r}, which is no operation of a group")
    *parents, last = path.split(".")
    return reduce(getattr, parents, sys.modules[module]), last


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end this process even where it waits inside MLX."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
