"""What all ranks of a group share about a model that is spread over them, and a pass."""

import zlib
from typing import Any

import mlx.core as mx

from spectool import RuntimeUnsupported
from spectool.runtime.groups.meeting import Meeting, joined, world
from spectool.runtime.per_model import once_per_model


@once_per_model
def group_of(model: Any) -> Any:
    """The group that a model is spread over, inside its layers or layer by layer; None if it is not."""
    if world().size() == 1:
        return None
    for module in model.modules() if hasattr(model, "modules") else ():
        group = getattr(module, "group", None)
        if isinstance(group, mx.distributed.Group) and group.size() > 1:
            return group
        if getattr(module, "pipeline_size", 1) > 1:
            return world()
    return None


def processes_of(model: Any) -> int:
    """Number of processes that a model is spread over; 1 if it is not."""
    group = group_of(model)
    return 1 if group is None else int(group.size())


class Link(Meeting):
    """What all ranks of a group share about a model."""

    def __init__(self, model: Any, group: Any) -> None:
        """Meet the other ranks; a RuntimeUnsupported if they have other versions, or another model."""
        super().__init__(group, joined())
        self._model, self._digest = model, 0
        met = self.gathered(repr(getattr(model, "args", None)))
        for rank, (arguments,) in enumerate(met):
            if arguments != met[0][0]:
                raise RuntimeUnsupported(f"rank {rank} has a model with {arguments}, and rank 0 one with {met[0][0]}")

    def _pass(self, tokens: list[list[int]], cache: Any, logits: bool) -> mx.array:
        """A pass that all ranks compute at the same time."""
        entries = getattr(cache, "entries", cache)
        found: mx.array = self._model(mx.array(tokens, dtype=mx.int32), cache=entries)
        mx.eval(found if logits else [entry.state for entry in entries])
        held = getattr(cache, "lengths", None)
        if held is None:
            held = sorted({at for entry in entries or () if isinstance(at := getattr(entry, "offset", None), int)})
        self._digest = zlib.crc32(repr((held, *map(sum, tokens))).encode(), self._digest)
        return found
