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
from spectool.runtime.caches.text_cache import TextCache
from spectool.runtime.drafters.drafter import Proposal
from spectool.runtime.drafters.drafter_slot import DrafterSlot


class DraftPasses:
    """The passes of draft models, which serve as many texts as are drafted for."""

    def __init__(self) -> None:
        self._shared: dict[int, SharedTexts] = {}  # by the identity of the model

    def draft(self, asked: Sequence[tuple[DrafterSlot, int]]) -> list[Proposal]:
        """The proposals of several drafters, each with the most tokens that it may draft."""
        self._begin([slot for slot, _ in asked])
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
                ready, waiting = self._fed(waiting), {}
        return [proposals[slot] for slot, _ in asked]

    def _begin(self, slots: Sequence[DrafterSlot]) -> None:
        by_model = dict[int, list[TextCache]]()
        for slot in slots:
            if slot.drafter is not None and (cache := slot.drafter.cache) is not None:
                by_model.setdefault(id(cache.model), []).append(cache)
        for model, caches in by_model.items():
            if model not in self._shared:
                self._shared[model] = SharedTexts(caches[0].model)
            self._shared[model].begin(caches)

    def _fed(self, waiting: dict[DrafterSlot, mx.array]) -> dict[DrafterSlot, Any]:
        """The logits after what each text feeds, or the error of its pass."""
        found = dict[DrafterSlot, Any]()
        slots = {slot.drafter.cache: slot for slot in waiting if slot.drafter is not None and slot.drafter.cache}
        for shared in {id(cache.model): self._shared[id(cache.model)] for cache in slots}.values():
            wanted = {cache: waiting[slot] for cache, slot in slots.items() if cache.model is shared.model}
            try:
                found |= {slots[cache]: logits for cache, logits in shared.feed(wanted).items()}
            except Exception as error:
                shared.drop()
                found |= {slots[cache]: error for cache in wanted}
        return found
