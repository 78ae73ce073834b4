"""Drafts of any mlx-lm model over draft ids, its cache following a context that may change anywhere.

    cache     holds BOS if any, the last context, and the drafts that were fed
    text      BOS if any, and the present context; the cache is taken back to what both begin with

The first pass of a cycle feeds at least the last two tokens of the text, which gives p(. | all but the last) and
p(. | all), so that healing costs no pass of its own. A healed token takes the last context token's place in the cache.
"""

import math
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from spectool.runtime.caches.text_cache import TextCache
from spectool.runtime.drafters.draft_model import draft_chain
from spectool.runtime.drafters.drafter import Drafting
from spectool.runtime.sampling.token_ids import require_tokens, vocabulary_size
from spectool.runtime.translation.byte_aligned import FirstTokenRule

MOST_ASKED = 32  # candidates that ``constraint.allows`` may be asked about
WORST = math.log(0.02)  # log-probability of a first token that may take a refused one's place, less that of the latter


class ModelSource:
    """Drafts of a model, its most probable tokens, with a cache of its own, of any kind, which outlives a text.

    Attributes:
        cache: The model and its cache.
        size: Number of ids that may be drafted.
        likely: Log-probability that the latest draft is right up to each of its ids, as far as the model can say.
    """

    costs_a_pass = True

    def __init__(
        self, model: Any, *, bos: int | None = None, size: int | None = None, min_probability: float = 0.0
    ) -> None:
        """Draft with ``model``, an mlx-lm model.

        Args:
            model: The draft model.
            bos: Fed before a context that does not begin with it.
            size: Number of its tokenizer's ids; further rows of the model are never drafted. None for all rows.
            min_probability: Make no further pass for drafts that are all right with less than this, 0..1. Above 0 each
                draft token is evaluated by itself.
        """
        self.cache, self._bos, self._min_probability = TextCache(model), bos, min_probability
        self._rows, self._text = vocabulary_size(model), list[int]()
        self.size = self._rows if size is None else min(size, self._rows)
        self._unfed: list[int] = []  # tokens of the latest draft that are not fed
        self.likely: list[float] = []

    def fork(self) -> "ModelSource":
        """A source with the same model, and a cache of its own."""
        return ModelSource(self.cache.model, bos=self._bos, size=self.size, min_probability=self._min_probability)

    def drafting(
        self, context: Sequence[int], constraint: FirstTokenRule, limit: int, unchanged: int = 0
    ) -> Drafting[tuple[list[int], bool]]:
        """At most ``limit`` draft ids after a context, and whether the first one is healed.

        The first is the best that ``constraint`` lets pass, none where it refuses them. Healed ones go by p(extension |
        all but the last context token), plain ones by p(last context token | the same) * p(token | context), and win a
        tie. Nothing is drafted for an empty context without BOS. A lone or unknown token is not healed. The first
        ``unchanged`` ids are those of the latest context.
        """
        text, self.likely = self.follow(context, unchanged), []
        if limit <= 0 or not text:
            return [], False
        logits = yield from self.feeding(constraint.extensions.size > 0)
        first = yield from self._first(logits, constraint, text[-1])
        if first is None:
            return [], False
        token, healed, likely = first
        self.likely = [likely]
        # A recurrent state goes back further than by the replaced token: what was before it is fed again.
        self._unfed = [*(self.cache.rewind(len(text) - 1) if healed else ()), token]
        further = yield from self.going_on(limit - 1)
        return [token, *further], healed

    def going_on(self, limit: int = 1) -> Drafting[list[int]]:
        """At most ``limit`` draft ids after those of the latest draft; empty where more do not pay."""
        drafts, highest, fed = yield from draft_chain(
            self.read, self._unfed, limit, min_probability=self._min_probability, likely=self.likely[-1]
        )
        if drafts:
            self.cache.tokens += [*self._unfed, *drafts[:fed]]
            self._unfed = drafts[fed:]
        for each in highest:
            self.likely.append(self.likely[-1] + each)
        return drafts

    def follow(self, context: Sequence[int], unchanged: int = 0) -> list[int]:
        """A context after BOS, if the model has one; its first ``unchanged`` ids are those of the latest one.

        Raises:
            TokenOutOfRange: The model does not have a token.
        """
        begin = [] if self._bos is None or list(context[:1]) == [self._bos] else [self._bos]
        new = list(context[unchanged:])
        require_tokens("draft model", new, self._rows)
        kept = unchanged + len(begin) if unchanged else 0
        self._text[kept:] = new if kept else begin + new
        self.cache.sure = min(self.cache.sure, kept)
        return self._text

    def feeding(self, healing: bool) -> Drafting[mx.array]:
        """Feed what of the text (at least one token) is not fed, and its last token in any case.

        Returns:
            Logits after it, float32 [1, size]. With ``healing`` [2, size], after all but the last token and after all,
            if there is something before that token and it is one of the tokenizer's.
        """
        last = 2 if healing and len(self._text) > 1 and self._text[-1] < self.size else 1
        new = self.cache.unfed(self._text, last)
        logits = self.read((yield mx.array(new, dtype=mx.int32))[-last:])
        self.cache.tokens += new
        return logits

    def read(self, logits: mx.array) -> mx.array:
        """Logits of the ids that may be drafted, float32 [tokens, size], from those of the model."""
        return logits[:, : self.size].astype(mx.float32)

    def _first(
        self, logits: mx.array, constraint: FirstTokenRule, last: int
    ) -> Drafting[tuple[int, bool, float] | None]:
        """The best first token that may be, whether it is healed, and its log-probability among all candidates.

        One that takes a refused one's place is nearly as probable: those far below are never right. ``logits`` are what
        `feeding` returns for a text that ends with the token ``last``.
        """
        plain, healed = logits[-1], mx.array(constraint.extensions[:0])
        scores = [plain]
        if len(logits) == 2:  # plain and healed candidates need a common scale
            before, after = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
            healed = mx.array(constraint.extensions[constraint.extensions < self.size])
            scores = [after + before[last], before[healed]]
        ids = mx.arange(self.size)
        if constraint.first is not None:
            ids = mx.array(constraint.first[constraint.first < self.size])
            scores[0] = scores[0][ids]
        ranked = mx.concatenate(scores)
        if not ranked.size:
            return None
        every, best = mx.logsumexp(ranked), -math.inf
        for _ in range(MOST_ASKED):
            place, score = mx.argmax(ranked), mx.max(ranked)
            yield [place, score, every]
            at, best = int(place), max(best, float(score))
            if not float(score) > -math.inf or float(score) < best + WORST:
                return None
            is_healed = at >= ids.size
            token = int(healed[at - ids.size] if is_healed else ids[at])
            if constraint.allows(token, is_healed):
                return token, is_healed, float(score) - float(every)
            ranked[at] = -math.inf
        return None
