"""What all ranks of a group share: how they find each other, what a message is, and a pass."""

import json
import zlib
from importlib.metadata import version
from typing import Any

import mlx.core as mx
import numpy as np

from spectool import RuntimeUnsupported, SpectoolError
from spectool.runtime.groups.watch import Watch
from spectool.runtime.per_model import once_per_model

_NUMBERS = 64  # of a message, the first of which says how many bytes follow
_FIRST_BYTES = 4 * (_NUMBERS - 1)


def group_now(model: Any) -> Any:
    """The group that a model is spread over, inside its layers or layer by layer; None if it is not."""
    if (world := mx.distributed.init()).size() == 1:
        return None
    for module in model.modules() if hasattr(model, "modules") else ():
        group = getattr(module, "group", None)
        if isinstance(group, mx.distributed.Group) and group.size() > 1:
            return group
        if getattr(module, "pipeline_size", 1) > 1:
            return world
    return None


@once_per_model
def group_of(model: Any) -> Any:
    """The same, as it was when the model was first used."""
    return group_now(model)


def repeats(model: Any) -> bool:
    """Whether this process only repeats what rank 0 does to the model."""
    group = group_of(model)
    return group is not None and group.rank() > 0


def processes_of(model: Any) -> int:
    """Number of processes that a model is spread over; 1 if it is not."""
    group = group_of(model)
    return 1 if group is None else int(group.size())


class Link:
    """What all ranks of a group share about a model."""

    def __init__(self, model: Any, group: Any, until_stopped: bool) -> None:
        """Meet the other ranks.

        Raises:
            RuntimeUnsupported: They have other versions.
        """
        self._model, self._group, self._digest = model, group, 0
        self._watch = Watch(group.rank(), group.size())
        address = self._watch.listen() if group.rank() == 0 else None
        versions = ", ".join(f"{name} {version(name)}" for name in ("spectool", "mlx", "mlx-lm"))
        own = json.dumps([versions, until_stopped, address]).encode()
        met = [json.loads(self._broadcast(own, rank)) for rank in range(group.size())]
        for rank, (found, *_) in enumerate(met):
            if found != met[0][0]:
                raise RuntimeUnsupported(
                    f"rank {rank} has {found}, and rank 0 {met[0][0]}. Install the same everywhere"
                )
        self.until_stopped = any(stopped for _, stopped, _ in met)
        self._watch.begin(met[0][2], at_once=self.until_stopped)

    def _broadcast(self, payload: bytes, rank: int = 0) -> bytes:
        """Send ``payload`` from a rank to the others, or receive it there."""
        sends = rank == self._group.rank()
        first = len(payload).to_bytes(4, "little") + payload[:_FIRST_BYTES]
        head = self._summed(first if sends else b"", _NUMBERS)
        size = int.from_bytes(head[:4], "little")
        if size > _FIRST_BYTES:
            head += self._summed(payload[_FIRST_BYTES:] if sends else b"", -(-(size - _FIRST_BYTES) // 4))
        return head[4 : 4 + size]

    def _summed(self, payload: bytes, numbers: int) -> bytes:
        """The bytes that one rank gives, on all ranks: the sum of ``numbers`` int32, which are zeros on the others.

        Raises:
            SpectoolError: A process is gone.
        """
        given = np.frombuffer(payload.ljust(4 * numbers, b"\0"), np.int32)
        try:
            total = mx.distributed.all_sum(mx.array(given), group=self._group, stream=mx.cpu)
            mx.eval(total)
        except RuntimeError as error:
            raise SpectoolError(f"another process of the group is gone ({error}). Start all of them again") from error
        return np.array(total).tobytes()

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
