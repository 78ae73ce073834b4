"""Drafts of models for several texts at once: each pass serves all of them, whose caches are rows of one.

texts    a     b     c          each is drafted for step by step (`Drafting`)
feed     a1 a2 b1    c1 c2 c3   one pass over three rows
feed     a3    b2    c4         one pass over three rows; c is not sure any more, and its draft ends
feed     a4    b3    -
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import mlx.core as mx

from spectool.runtime.caches.shared import BatchCache, kind_of
from spectool.runtime.caches.text_cache import AT_ONCE, TextCache
from spectool.runtime.drafters.drafter import Proposal
from spectool.runtime.drafters.drafter_slot import DrafterSlot
from spectool.runtime.groups.rank_0 import forward, make_prompt_cache

_ROW_WIDTH = 2 * AT_ONCE  # tokens that a row may feed in one pass, with those that are fed again
_UNUSED = 8  # rounds of drafts after which a row that was not drafted for leaves


class DraftPasses:
    """The passes of a draft model, which serve as many texts as are drafted for."""

    def __init__(self) -> None:
        self._shared: SharedTexts | None = None

    def draft(self, asked: Sequence[tuple[DrafterSlot, int]]) -> list[Proposal]:
        """The proposals of several drafters, each with the most tokens that it may draft."""
        if caches := [slot.cache for slot, _ in asked if slot.drafter is not None and slot.cache is not None]:
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
        slots = {slot.cache: slot for slot in waiting if slot.drafter is not None and slot.cache is not None}
        found = dict[DrafterSlot, Any].fromkeys(waiting)  # nothing for one without a cache
        if slots and self._shared is not None:
            try:
                logits = self._shared.feed({cache: waiting[slot] for cache, slot in slots.items()})
            except Exception as error:
                self._shared.drop()
                return dict.fromkeys(waiting, error)
            found |= {slots[cache]: each for cache, each in logits.items()}
        return found


class SharedTexts:
    """The `TextCache`s of one model that have rows of one `BatchCache`.

    A text joins when it is drafted for together with others. It leaves when it has much to read, is alone again, or has
    not been drafted for in a while.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._members: list[TextCache] = []  # in the order of the rows
        self._unused: dict[TextCache, int] = {}  # rounds since each was drafted for
        self._rows: BatchCache | None = None
        self._together = False  # whether this round is made in the rows
        self._marked = set[TextCache]()  # members whose place before this round is marked
        self._can_share = kind_of(model, make_prompt_cache(model)) is not None

    def begin(self, drafted_for: Collection[TextCache]) -> None:
        """Begin a round of drafts for these texts."""
        for member in list(self._members):
            if member.shared is None:
                continue  # dropped with one that could not leave
            self._unused[member] = 0 if member in drafted_for else self._unused[member] + 1
            if self._unused[member] > _UNUSED:
                self.leave(member)
        if len(drafted_for) == 1 and self._members == list(drafted_for):
            self.leave(self._members[0])
        self._together = self._can_share and (len(drafted_for) > 1 or bool(self._members))
        self._marked.clear()

    def feed(self, wanted: Mapping[TextCache, mx.array]) -> dict[TextCache, mx.array]:
        """The logits [tokens, vocabulary] after what each text feeds, a few tokens, int32 [tokens]; lazy."""
        if not self._together:
            return {cache: cache.feed(tokens) for cache, tokens in wanted.items()}
        for cache in wanted:
            if cache.shared is None:
                self._join(cache)
        assert self._rows is not None
        # Only now: before its first pass of a round, a text takes back what was wrong in the round before.
        self._rows.mark([self._members.index(cache) for cache in wanted if cache not in self._marked])
        self._marked.update(wanted)
        counts = [wanted[member].size if member in wanted else 0 for member in self._members]
        nothing = mx.zeros(max(counts), dtype=mx.int32)
        inputs = [
            nothing if not count else mx.concatenate([wanted[member], nothing[count:]])
            for member, count in zip(self._members, counts, strict=True)
        ]
        self._rows.begin(counts)
        logits = forward(self.model, mx.stack(inputs), self._rows)
        mx.async_eval(logits, self._rows.arrays())  # type: ignore[no-untyped-call]
        for member in wanted:
            member.passes += 1
        rows = enumerate(zip(self._members, counts, strict=True))
        return {member: logits[row, :count] for row, (member, count) in rows if count}

    def rewind(self, member: TextCache, kept: int) -> int | None:
        """Take a row back to ``kept`` tokens, or to fewer; return how many it holds, None if there is no way back."""
        assert self._rows is not None
        row = self._members.index(member)
        if kept < self._rows.least[row]:
            return None
        lengths = list(self._rows.lengths)
        lengths[row] = min(kept, lengths[row])
        self._rows.take_back(lengths)
        return held if (held := self._rows.lengths[row]) <= kept else None

    def leave(self, member: TextCache) -> None:
        """Give a text a cache of its own again, with what its row holds; with nothing, if that fails.

        It is without the drafts of the last round where they could not be taken out of it any more.
        """
        assert self._rows is not None
        row, cache = self._members.index(member), make_prompt_cache(self.model)
        length = min(len(member.tokens), self._rows.returnable(row))
        try:
            held = self._rows.leave(row, cache, length, spare=AT_ONCE)
        except Exception:
            self.drop()
            return
        self._forget(row)
        if held is None:
            member.forget()
        else:
            member.replace(cache, member.tokens[:held])

    def drop(self) -> None:
        """Have all texts begin again with caches of their own, where the rows cannot be used any more."""
        while self._members:
            member = self._members[-1]
            self._forget(len(self._members) - 1)
            member.forget()

    def _forget(self, row: int) -> None:
        """A row is gone, and the last one has taken its place."""
        member = self._members[row]
        self._members[row], member.shared = self._members[-1], None
        del self._members[-1], self._unused[member]
        if not self._members:
            self._rows = None

    def _join(self, cache: TextCache) -> None:
        """Move what a text holds into a row."""
        own, tokens = cache.content()
        if self._rows is None:
            self._rows = BatchCache(own, _ROW_WIDTH)
        self._rows.join(own, len(tokens))
        self._members.append(cache)
        self._unused[cache] = 0
        cache.shared = self
