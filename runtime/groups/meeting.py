"""How the ranks of a group find each other, and messages from one of them to all."""

import json
import os
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from typing import Any

import mlx.core as mx
import numpy as np

from spectool import RuntimeUnsupported, SpectoolError
from spectool.runtime.groups.watch import Watch, addresses_of_ranks

_NUMBERS = 256  # of a message, the first of which says how many bytes follow
_FIRST_BYTES = 4 * (_NUMBERS - 1)
_MOST_BYTES = 1 << 30


@cache
def world() -> Any:
    """All processes of ``mlx.launch`` once they are there, or this one; a SpectoolError if it cannot join them."""
    rank, addresses = os.environ.get("MLX_RANK", ""), addresses_of_ranks()
    names = {str(each): f"rank {each} ({at})" for each, at in enumerate(addresses)}
    if len(names) > 1:  # said beforehand, since MLX lets no other thread run while it waits
        others = ", ".join(name for each, name in names.items() if each != rank)
        print(f"rank {rank} of {len(addresses)} is waiting for {others}", file=sys.stderr, flush=True)
    try:
        return mx.distributed.init()
    except (RuntimeError, ValueError) as error:
        raise SpectoolError(
            f"{names.get(rank, f'rank {rank}')} cannot join the group ({error}). Check that nothing else uses its "
            "address, that no rank was started twice and that the others are running, then start all of them again"
        ) from error


@cache
def joined() -> Watch:
    """The watch over `world`, which has met; RuntimeUnsupported for other versions, or one that cannot reach rank 0."""
    group = world()
    watch = Watch(group.rank(), addresses_of_ranks())
    meeting = Meeting(group, watch)
    versions = ", ".join(f"{name} {version(name)}" for name in ("spectool", "mlx", "mlx-lm"))
    met = meeting.gathered(versions, watch.listen() if group.rank() == 0 else None)
    for rank, (found, _) in enumerate(met):
        if found != met[0][0]:
            raise RuntimeUnsupported(f"rank {rank} has {found}, and rank 0 {met[0][0]}. Install the same everywhere")
    for rank, (connected,) in enumerate(meeting.gathered(group.rank() == 0 or watch.connect(met[0][1]))):
        if not connected:
            at = " or ".join(f"{host}:{port}" for host, port in met[0][1]["addresses"]) or "any address"
            raise RuntimeUnsupported(
                f"{watch.named(rank)} cannot reach rank 0 at {at}. Let the firewall of rank 0 accept connections from "
                "the other machines of the group"
            )
    watch.begin()
    return watch


class Meeting:
    """Messages between the ranks of a group. Nothing of MLX is under way when one is sent."""

    def __init__(self, group: Any, watch: Watch) -> None:
        self._group, self._watch = group, watch

    def gathered(self, *own: Any) -> list[list[Any]]:
        """What each rank gives, by rank; as JSON has it."""
        return [self._received(json.dumps(own).encode(), rank) for rank in range(self._group.size())]

    def _received(self, payload: bytes = b"", rank: int = 0) -> list[Any]:
        """The list that a rank sends as JSON: this one ``payload``. A SpectoolError for all else, or if one is gone."""
        message = self._broadcast(payload, rank)
        with suppress(ValueError):
            if isinstance(found := json.loads(message), list):
                return found
        raise SpectoolError(
            f"expected a message of the group, got {message[:16]!r}. The ranks but the first have to make no calls of "
            "their own, of mlx-lm or mx.distributed"
        )

    def _broadcast(self, payload: bytes, rank: int = 0) -> bytes:
        """Send ``payload`` from a rank to the others, or receive it there."""
        sends = rank == self._group.rank()
        first = len(payload).to_bytes(4, "little") + payload[:_FIRST_BYTES]
        head = self._summed(first if sends else b"", _NUMBERS)
        size = int.from_bytes(head[:4], "little")
        if size > _MOST_BYTES:
            return head  # not a message; the caller says so
        if size > _FIRST_BYTES:
            head += self._summed(payload[_FIRST_BYTES:] if sends else b"", -(-(size - _FIRST_BYTES) // 4))
        return head[4 : 4 + size]

    def _summed(self, payload: bytes, numbers: int) -> bytes:
        """The bytes that one rank gives, on all ranks: the sum of ``numbers`` int32, which are zeros on the others."""
        given = np.frombuffer(payload.ljust(4 * numbers, b"\0"), np.int32)
        with self._watch.waiting(meets=True):
            total = mx.distributed.all_sum(mx.array(given), group=self._group, stream=mx.cpu)
            mx.eval(total)
        return np.array(total).tobytes()
