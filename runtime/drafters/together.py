"""Drafts of models for several texts at once: each pass serves all of them.

texts    a     b     c          each is drafted for step by step (`Drafting`)
feed     a1 a2 b1    c1 c2 c3   one pass over three rows
feed     a3    b2    c4         one pass over three rows; c is not sure any more, and its draft ends
feed     a4    b3    -
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from spectool.runtime.caches.shared_texts import SharedTexts
from spectool.runtime.drafters.drafter import Proposal
from spectool.runtime.drafters.drafter_slot import DrafterSlot


class DraftPasses:
    """The passes of a draft model, which serve as many texts as are drafted for."""

    def __init__(self) -> None:
        self._shared: SharedTexts | None = None

    def draft(self, asked: Sequence[tuple[DrafterSlot, int]]) -> list[Proposal]:
        """The proposals of several drafters, each with the most tokens that it may draft."""
        if caches := [
            cache for slot, _ in asked if slot.drafter is not None and (cache := slot.drafter.cache) is not None
        ]:
            self._shared = self._shared or SharedTexts(caches[0].model)
            self._shared.begin(caches)
        drafting = {slot: slot.drafting(limit) for slot, limit in asked}
        proposals = dict[DrafterSlot, Proposal]()
        ready: dict[DrafterSlot, Any] = dict.fromkeys(drafting)
        waiting = dict[DrafterSlot, mx.array]()  # for a pass over these tokens
        while ready or waiting:
            arrays = dict[DrafterSlot, list[mx.array]]()
            for slot, found in ready.items():
                with slot.randomness:
                    try:
                        steps = drafting[slot]
                        wanted = steps.throw(found) if isinstance(found, Exception) else steps.send(found)
                    except StopIteration as end:
                        proposals[slot] = end.value
                        continue
                if isinstance(wanted, list):
                    arrays[slot] = wanted
                else:
                    waiting[slot] = wanted
            if arrays:  # all feed together again once these know what
                ready = dict.fromkeys(arrays)
                try:
                    mx.eval(list(arrays.values()))
                except Exception as error:
                    ready = dict.fromkeys(arrays, error)
            else:
                ready, waiting = self._fed(waiting) if waiting else {}, {}
        return [proposals[slot] for slot, _ in asked]

    def _fed(self, waiting: dict[DrafterSlot, mx.array]) -> dict[DrafterSlot, Any]:
        """The logits after what each text feeds, or the error of the pass."""
        assert self._shared is not None
        slots = {slot.drafter.cache: slot for slot in waiting if slot.drafter is not None and slot.drafter.cache}
        try:
            found = self._shared.feed({cache: waiting[slot] for cache, slot in slots.items()})
        except Exception as error:
            self._shared.drop()
            return dict.fromkeys(waiting, error)
        return {slots[cache]: logits for cache, logits in found.items()}
