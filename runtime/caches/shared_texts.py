"""The caches of several texts of a draft model, which share its passes while they are drafted for together."""

from collections.abc import Collection, Mapping
from typing import Any

import mlx.core as mx

from spectool.runtime.caches.shared import BatchCache, kind_of
from spectool.runtime.caches.text_cache import TextCache
from spectool.runtime.groups.rank_0 import forward, make_prompt_cache

_ROW_WIDTH = 64  # tokens that a row may feed in one pass; more are read in the cache of the text alone
_UNUSED = 8  # rounds of drafts after which a row that was not drafted for leaves


class SharedTexts:
    """The `TextCache`s of one model that have rows of one `BatchCache`.

    A text joins when it is drafted for together with others. It leaves when it has much to read, is alone again, or has
    not been drafted for in a while.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._members: list[TextCache] = []  # in the order of the rows
        self._unused: list[int] = []  # rounds since each was drafted for
        self._rows: BatchCache | None = None
        self._together = False  # whether this round is made in the rows
        self._can_share = kind_of(model, make_prompt_cache(model)) is not None

    def begin(self, drafted_for: Collection[TextCache]) -> None:
        """Begin a round of drafts for these texts."""
        for member in list(self._members):
            place = self._members.index(member)
            self._unused[place] = 0 if member in drafted_for else self._unused[place] + 1
            if self._unused[place] > _UNUSED:
                self.leave(member)
        if len(drafted_for) == 1 and self._members == list(drafted_for):
            self.leave(self._members[0])
        self._together = self._can_share and (len(drafted_for) > 1 or bool(self._members))
        if self._rows is not None:
            self._rows.mark()

    def feed(self, wanted: Mapping[TextCache, mx.array]) -> dict[TextCache, mx.array]:
        """The logits [tokens, vocabulary] after what each text feeds, int32 [tokens]; lazy.

        Texts that feed a few tokens share a pass.
        """
        if not self._together:
            return {cache: cache.feed(tokens) for cache, tokens in wanted.items()}
        long = {cache: cache.feed(tokens) for cache, tokens in wanted.items() if tokens.size > _ROW_WIDTH}
        short = {cache: tokens for cache, tokens in wanted.items() if cache not in long}
        for cache in short:
            if cache.shared is None:
                self._join(cache)
        if not short or self._rows is None:
            return long
        counts = [short[member].size if member in short else 0 for member in self._members]
        width = max(counts)
        nothing = mx.zeros(width, dtype=mx.int32)
        inputs = [
            nothing if not count else mx.concatenate([short[member], nothing[count:]])
            for member, count in zip(self._members, counts, strict=True)
        ]
        self._rows.begin(counts)
        logits = forward(self.model, mx.stack(inputs), self._rows)
        mx.async_eval(logits, self._rows.arrays())  # type: ignore[no-untyped-call]
        for member in short:
            member.passes += 1
        rows = enumerate(zip(self._members, counts, strict=True))
        return long | {member: logits[row, :count] for row, (member, count) in rows if count}

    def rewind(self, member: TextCache, kept: int) -> int:
        """Take a row back to ``kept`` tokens, or to fewer; return how many it holds."""
        assert self._rows is not None
        row = self._members.index(member)
        lengths = list(self._rows.lengths)
        lengths[row] = min(kept, lengths[row])
        self._rows.take_back(lengths)
        return self._rows.lengths[row]

    def leave(self, member: TextCache) -> None:
        """Give a text a cache of its own again, with what its row holds."""
        assert self._rows is not None
        row, cache = self._members.index(member), make_prompt_cache(self.model)
        held = self._rows.leave(row, cache, len(member.tokens))
        self._members[row], self._unused[row] = self._members[-1], self._unused[-1]
        del self._members[-1], self._unused[-1]
        member.shared = None
        member.replace(cache, member.tokens[:held])
        if not self._members:
            self._rows = None

    def _join(self, cache: TextCache) -> None:
        """Move what a text holds into a row."""
        own, tokens = cache.content()
        if self._rows is None:
            self._rows = BatchCache(own, _ROW_WIDTH)
        self._rows.join(own, len(tokens))
        self._members.append(cache)
        self._unused.append(0)
        cache.shared = self
