"""Drafts of any mlx-lm model over draft ids, its cache following a context that may change anywhere.

    cache     holds BOS if any, the last context, and the drafts that were fed
    text      BOS if any, and the present context; the cache is taken back to what both begin with

The healing comparison costs no pass of its own. The first pass of a cycle feeds at least the last two tokens of the
text. It gives p(. | all but the last) and p(. | all). A healed token then takes the last context token's place in the
cache. k draft tokens take k passes, and a long new context some of its own.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spectool.runtime.caches.draft_cache import DraftCache
from spectool.runtime.decoding.drafter import accepted_length
from spectool.runtime.decoding.token_ids import require_tokens, vocabulary_size
from spectool.runtime.decoding.verification import ids as evaluated
from spectool.runtime.translation.protocol import Constraint, DraftContext, DraftSource, allow_any

_TOGETHER = 32  # new context tokens whose logits are computed with the last one's rather than fed before


class _Choice(NamedTuple):
    """Candidates for the first token, lazy."""

    healed: bool  # whether they replace the last context token
    tokens: mx.array | None  # their ids, int32 [candidates]; None where candidate i is id i
    scores: mx.array  # log-probabilities up to a constant, -inf for what is not allowed. float32 [candidates].


class ModelSource(DraftSource):
    """Drafts of a model, the most probable tokens or drawn ones, with a cache of its own, of any kind.

    The cache outlives a text: the next one is fed from where it differs.

    Attributes:
        passes: Forward passes so far; more than 32 new context tokens take passes of their own,
            one for each ``prefill_step_size``.
        fed_tokens: Tokens fed in them.
        size: Ids that may be drafted.
        agreed: Leading tokens of the cache that the previous context had, too.
    """

    costs_a_pass = True
    cache: DraftCache

    def __init__(
        self,
        model: Any,
        *,
        bos: int | None = None,
        size: int | None = None,
        most_asked: int = 16,
        min_probability: float = 0.0,
        prefill_step_size: int = 2048,
    ) -> None:
        """Draft with ``model``, an mlx-lm model.

        Args:
            model: The draft model.
            bos: Fed before a context that does not begin with it.
            size: Number of its tokenizer's ids; further rows of the model are never drafted. None
                for all rows.
            most_asked: Plain and healed candidates, each, that ``constraint.allows`` is asked
                about before the source gives up.
            min_probability: Make no further pass for drafts that are all right with less than this, 0..1. Above 0
                each draft token is evaluated by itself.
            prefill_step_size: Context tokens in one pass.
        """
        self.passes = 0
        self.fed_tokens = 0
        self.cache = DraftCache(model, prefill_step_size)
        self._bos = bos
        self._most_asked = most_asked
        self._least = math.log(min_probability) if min_probability > 0 else -math.inf
        self._rows = vocabulary_size(model)
        self.size = self._rows if size is None else min(size, self._rows)
        self.agreed = 0
        self._mask_of: NDArray[np.bool_] | None = None
        self._mask: mx.array | None = None

    def start(self) -> None:
        """Begin a text."""
        self.agreed = 0

    def scorer(self) -> Any:
        """Return what says how likely draft ids are."""
        from spectool.runtime.drafters.model_scorer import ModelScorer

        return ModelScorer(self)

    def draft(self, context: DraftContext, constraint: Constraint, limit: int) -> tuple[list[int], bool]:
        """As `DraftSource.draft`; empty for an empty context without BOS. A lone or unknown last token is not healed.

        Raises:
            TokenOutOfRange: The model does not have a context token.
        """
        text = self.compare(context)
        if limit <= 0 or not text or not self._set_mask(constraint.within):
            return [], False
        logits = self.feed_text(text, constraint.extensions.size > 0)
        if len(logits) == 1 and constraint.first is None and constraint.allows is allow_any:
            return self._chain(*self._best(logits), limit), False
        choices = self._choices(logits, constraint, text[-1])
        found = next((best for best in self._best_first(choices) if constraint.allows(*best[:2])), None)
        if found is None:
            return [], False
        first, healed, score = found
        likely = score - mx.logsumexp(mx.concatenate([choice.scores for choice in choices]))
        # A recurrent state goes back further than by the replaced token: what was before it is fed again.
        again = text[self.rewind(len(text) - 1) : -1] if healed else []
        return self._chain(mx.array([first]), likely, limit, again), healed

    def compare(self, context: DraftContext) -> list[int]:
        """Return the text of a context, and note how much of it is what was fed."""
        begun = self._bos is None or (len(context.ids) > 0 and context.ids[0] == self._bos)
        text = list(context.ids) if begun else [self._bos or 0, *context.ids]
        same = min(self.agreed, context.kept + len(text) - len(context.ids))
        self.agreed = same + accepted_length(self.cache.tokens[same:], text[same:])
        return text

    def rewind(self, kept: int) -> int:
        """Take the cache back to the first ``kept`` tokens, or to fewer where it cannot; return how many it has."""
        self.cache.rewind(kept)
        kept = len(self.cache.tokens)
        self.agreed = min(self.agreed, kept)
        return kept

    def feed_text(self, text: list[int], healing: bool) -> mx.array:
        """Feed what of ``text`` (at least one token, just compared) is not fed, and its last token in any case.

        Returns:
            Logits after it, float32 [1, size]. With ``healing`` [2, size], after all but the last token and after all,
            if something stands before that token and it is one of the tokenizer's.

        Raises:
            TokenOutOfRange: The model does not have a token.
        """
        last = 2 if healing and len(text) > 1 and text[-1] < self.size else 1
        new = text[self.rewind(min(self.agreed, len(text) - last)) :]
        require_tokens("draft model", new, self._rows)
        if len(new) > _TOGETHER:
            early, new = new[:-last], new[-last:]
            self.passes += self.cache.prefill(early)
            self.fed_tokens += len(early)
        logits = self.run(mx.array(new))[-last:]
        self.cache.tokens += new
        self.agreed = len(text)
        return logits

    def run(self, tokens: mx.array) -> mx.array:
        """Feed tokens, int32 [tokens]; return all their logits, float32 [tokens, size], lazy."""
        self.passes += 1
        self.fed_tokens += tokens.size
        return self.cache.feed(tokens)[:, : self.size].astype(mx.float32)

    def _choices(self, logits: mx.array, constraint: Constraint, last: int) -> list[_Choice]:
        """Return the plain and the healed candidates that the constraint's ids leave.

        ``logits`` are what `feed_text` returns for a text that ends with the token ``last``.
        """
        choices, healing = [], len(logits) == 2
        # Only plain and healed candidates together need a common scale.
        scores = logits - mx.logsumexp(logits, axis=-1, keepdims=True) if healing else logits
        plain = scores[-1] + scores[0, last] if healing else scores[-1]
        if constraint.first is None:
            choices.append(_Choice(False, None, self._masked(plain)))
        else:
            tokens = self._allowed(constraint.first, constraint.within)
            choices.append(_Choice(False, tokens, plain[tokens]))
        if healing:
            tokens = self._allowed(constraint.extensions, constraint.within)
            choices.append(_Choice(True, tokens, scores[0][tokens]))
        return [choice for choice in choices if choice.scores.size]

    def _best_first(self, choices: list[_Choice]) -> Iterator[tuple[int, bool, float]]:
        """Yield candidates, whether they are healed, and scores: the best one, and others only when that is refused."""
        begun = None
        for count in (1, self._most_asked):
            tops = []
            for choice in choices:
                if count == 1:
                    places = mx.argmax(choice.scores, keepdims=True)
                else:
                    number = min(count, choice.scores.size)
                    places = mx.argpartition(-choice.scores, kth=number - 1)[:number]
                tokens = places if choice.tokens is None else choice.tokens[places]
                tops.append((tokens, choice.scores[places]))
            mx.eval(tops)
            ranked = sorted(
                (-score, choice.healed, token)
                for choice, (tokens, scores) in zip(choices, tops, strict=True)
                for token, score in zip(evaluated(tokens), np.array(scores).tolist(), strict=True)
                if score > -np.inf
            )
            for score, healed, token in ranked[:1] if count == 1 else ranked:
                if (token, healed) != begun:
                    yield token, healed, -score
                begun = begun or (token, healed)

    def _chain(self, first: mx.array, likely: mx.array, limit: int, again: Sequence[int] = ()) -> list[int]:
        """Feed ``again`` and ``first`` [1], of log-probability ``likely``; return it and what follows.

        All of it is chained on the device and evaluated once, unless its probability decides where it ends.
        """
        drafts, feed = [first], mx.concatenate([mx.array(list(again), dtype=first.dtype), first]) if again else first
        while len(drafts) < limit and (self._least == -math.inf or float(likely) >= self._least):
            feed, added = self._best(self.run(feed))
            drafts.append(feed)
            likely = likely + added
        tokens = evaluated(mx.concatenate(drafts))
        if len(drafts) > 1:
            self.cache.tokens += [*again, *tokens[:-1]]
        return tokens

    def _best(self, logits: mx.array) -> tuple[mx.array, mx.array]:
        """Return the most probable token [1] after the last of ``logits`` [tokens, size], and log p [] of it; lazy."""
        scores = self._masked(logits[-1])
        return mx.argmax(scores, keepdims=True), mx.max(scores) - mx.logsumexp(scores)

    def _allowed(self, tokens: NDArray[np.int32], within: NDArray[np.bool_] | None) -> mx.array:
        """Return those of ``tokens`` that the model has and the mask admits."""
        tokens = tokens[tokens < (self.size if within is None else min(self.size, len(within)))]
        return mx.array(tokens if within is None else tokens[within[tokens]])

    def _masked(self, scores: mx.array) -> mx.array:
        """Return scores [size] with -inf outside the mask, if there is one."""
        return scores if self._mask is None else mx.where(self._mask, scores, -mx.inf)

    def _set_mask(self, within: NDArray[np.bool_] | None) -> bool:
        """Take the mask to the device, unless it is there; return whether it admits anything."""
        if within is not self._mask_of:
            self._mask_of, self._mask = within, None
            if within is not None and within[: self.size].any():
                whole = np.zeros(self.size, dtype=bool)
                whole[: len(within)] = within[: self.size]
                self._mask = mx.array(whole)
        return within is None or self._mask is not None
