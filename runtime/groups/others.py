"""The other ranks: they repeat what rank 0 tells."""

import copy
import json
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pkgutil import resolve_name
from typing import Any

import mlx.core as mx

from spectool import RuntimeUnsupported, SpectoolError
from spectool.runtime import mlx_lm_compat
from spectool.runtime.groups.link import Link, group_of
from spectool.runtime.groups.mirrored import FAILED, SpreadCache, operations

_CLEAR_EVERY = 256  # passes between two mx.clear_cache()


def follow_rank_0(model: Any) -> None:
    """On the other ranks of a spread model, repeat what rank 0 does until its process ends, and end with it.

    Returns on rank 0, and where the model is not spread.
    """
    group = group_of(model)
    if group is not None and group.rank() > 0:
        Follower(model).follow()
        sys.exit(0)


class Follower(Link):
    """Another rank, which repeats what rank 0 tells."""

    def __init__(self, model: Any) -> None:
        self._objects: dict[int, Any] = {}
        self._passes = 0
        super().__init__(model)

    def follow(self) -> None:
        """Repeat what rank 0 does until its process ends."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # so that Ctrl-C ends this process even where it waits inside MLX
        with mlx_lm_compat.wired_limit(self._model, [mx.default_stream(mx.default_device())]):
            for message in self._watch.told():
                with self._watch.working():
                    for operation in json.loads(message):
                        self._repeat(operation)

    def _repeat(self, told: list[Any]) -> None:
        objects = self._objects
        match told:
            case ["pass", tokens, cache, logits]:
                self._passes += 1
                if not logits or self._passes % _CLEAR_EVERY == 0:
                    mx.clear_cache()
                with suppress(RuntimeUnsupported):  # which rank 0 raises as well
                    self._pass(tokens, None if cache is None else objects[int(cache)], logits)
            case ["make", number, size]:
                objects[number] = SpreadCache(mlx_lm_compat.make_prompt_cache(self._model, size))
            case ["copy", source, number]:
                objects[number] = copy.deepcopy(objects[int(source)])
            case ["work", work, cache, arguments, named]:
                _found(work)(self._model, objects[int(cache)], *arguments, **named)
            case ["drop", number]:
                del objects[number]
            case [name, *told]:
                self._repeat_mirrored(name, *told)

    def _repeat_mirrored(self, name: str, arguments: list[Any], named: dict[str, Any], result: Any) -> None:
        operation = _found(name)
        if name.endswith(".__init__"):
            self._objects[int(arguments[0])] = object.__new__(resolve_name(name.removesuffix(".__init__")))
        given = [self._objects[int(each)] if isinstance(each, str) else each for each in arguments]
        try:
            found = operation(*given, **named)
        except Exception:
            if result != FAILED:
                raise
        else:
            if result == FAILED or (result is not None and found != result):
                raise RuntimeUnsupported(
                    f"{name}: rank 0 has {result}, and this rank {found}. In a pipeline, all parts of the model need "
                    "layers of the same kinds"
                )


def _found(name: str) -> Any:
    """An operation, by its name; a SpectoolError if it is none of those that rank 0 may name."""
    if name.startswith("spectool."):
        import_module(name.partition(":")[0])
    if name not in operations:
        raise SpectoolError(f"rank 0 asks for {name!r}, which is no operation of a group")
    return resolve_name(name)
