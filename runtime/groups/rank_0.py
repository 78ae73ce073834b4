"""Rank 0: what the product calls, with or without other ranks that repeat it."""

import atexit
import itertools
import json
import logging
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import mlx.core as mx

from spectool import RuntimeUnsupported, SpectoolError
from spectool.runtime import mlx_lm_compat
from spectool.runtime.groups.link import Link, group_of
from spectool.runtime.groups.mirrored import Spread, SpreadCache, name_of, uninterrupted
from spectool.runtime.per_model import once_per_model

_P = ParamSpec("_P")
_R = TypeVar("_R")

log = logging.getLogger(__name__)


def make_prompt_cache(model: Any, max_kv_size: int | None = None) -> list[Any]:
    """mlx-lm's prompt cache for ``model``, on all ranks."""
    entries: list[Any] = mlx_lm_compat.make_prompt_cache(model, max_kv_size)
    leader = leader_of(model)
    return entries if leader is None else SpreadCache(entries, leader, max_kv_size)


def forward(model: Any, inputs: mx.array, cache: Any = None, *, logits: bool = True) -> mx.array:
    """A pass over ``inputs`` [rows, tokens], which the other ranks make as well; lazy where there are none.

    A pass in a group without ``logits`` computes what it writes to ``cache``, a prompt cache or a `BatchCache`, alone.
    """
    leader = leader_of(model)
    if leader is None:
        return model(inputs, cache=getattr(cache, "entries", cache))  # type: ignore[no-any-return]
    return leader.forward(inputs, cache, logits)


def forward_of(model: Any) -> Callable[[mx.array, Any], mx.array]:
    """`forward` of one model, for many passes: whether there are other ranks is looked up once."""
    leader = leader_of(model)
    if leader is not None:
        return lambda inputs, cache: leader.forward(inputs, cache, True)
    return lambda inputs, cache: model(inputs, cache=cache)


def run_on_all_ranks(
    work: Callable[Concatenate[Any, list[Any], _P], _R],
    model: Any,
    cache: list[Any],
    *arguments: _P.args,
    **named: _P.kwargs,
) -> _R:
    """`repeatable` work that makes passes of its own, the same ones on all ranks, and leaves none under way."""
    leader = leader_of(model)
    if leader is None:
        return work(model, cache, *arguments, **named)
    assert isinstance(cache, SpreadCache)
    done = partial(work, model, cache, *arguments, **named)
    return leader.meet(done, "work", name_of(work), leader.named(cache), arguments, named)


@once_per_model
def leader_of(model: Any) -> "Leader | None":
    """What sends to the other ranks of a spread model; None where there are none, and on these ranks."""
    group = group_of(model)
    return Leader(model) if group is not None and group.rank() == 0 else None


class Leader(Link):
    """Rank 0, which records what it does and tells the others before each pass."""

    def __init__(self, model: Any) -> None:
        self._recorded: list[list[Any]] = []
        self._dropped: deque[int] = deque()  # filled by any thread
        self._numbers = itertools.count()
        super().__init__(model)
        atexit.register(self.stop)

    @property
    def _over(self) -> bool:
        return self._watch.expects_end or self._watch.failed

    def added(self, new: Spread) -> int:
        """Give an object its number."""
        new.leader, new.number = self, next(self._numbers)
        weakref.finalize(new, self._dropped.append, new.number).atexit = False
        return new.number

    def named(self, known: Spread) -> str:
        """What an object is called, which is made on the other ranks first if they do not have it."""
        if known.number is None:
            self.added(known)
            if isinstance(known, SpreadCache):
                self.record("make", known.number, known.size)
        return str(known.number)

    def record(self, name: str, *told: Any) -> None:
        """Record an operation, to be told with the next message."""
        self._recorded.append([name, *told])

    def send(self, name: str, *told: Any) -> None:
        """Tell the other ranks what was recorded, and one thing more."""
        while self._dropped:
            self.record("drop", self._dropped.popleft())
        self.record(name, *told)
        recorded, self._recorded = self._recorded, []
        log.debug("rank 0 tells %s", recorded)
        self._watch.tell(json.dumps(recorded, separators=(",", ":")).encode())

    def forward(self, inputs: mx.array, cache: Any, logits: bool) -> mx.array:
        """A pass on all ranks; RuntimeUnsupported if the model refuses it, as on all, or only rank 0 has the cache."""
        if cache is not None and not isinstance(cache, Spread):
            raise RuntimeUnsupported(
                "prompt_cache: expected one that all processes of the model have, got that of one process. Make it "
                "with spectool.runtime.groups.rank_0.make_prompt_cache(model)"
            )
        tokens: Any = inputs.tolist()
        named = None if cache is None else self.named(cache)
        return self.meet(lambda: self._pass(tokens, cache, logits), "pass", tokens, named, logits)

    def meet(self, work: Callable[[], _R], name: str, *told: Any) -> _R:
        """Tell the others what all ranks compute together, and compute it; a SpectoolError if the group has ended."""
        if self._over:
            raise SpectoolError("the group of processes has ended. Start it again")
        with uninterrupted(), self._watch.working(RuntimeUnsupported):
            self.send(name, *told)
            return work()

    def stop(self) -> None:
        """End the other ranks."""
        if not self._over:
            self._watch.stop()
