"""Drafts from a small model that shares the target's tokenizer.

    cache     tokens in the draft model's cache: committed ones, then `ahead` drafts of the last proposal
    pending   committed tokens that it does not hold; fed together with the next proposal

A proposal of k tokens takes k passes: the pending tokens give d1, d1 gives d2, and dk is not fed. They are chained on
the device and evaluated once, unless their probability decides where they end.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx

from spectool.runtime.caches.text_cache import PREFILL_TOKENS, TextCache
from spectool.runtime.drafters.chain import draft_chain, most_probable
from spectool.runtime.drafters.drafter import Drafter, Proposal, accepted_length
from spectool.runtime.drafters.drafting import Drafting, alone
from spectool.runtime.sampling.token_ids import require_tokens, vocabulary_size
from spectool.runtime.sampling.verification import evaluated
from spectool.tokenization.incremental.common_prefix import common_prefix

if TYPE_CHECKING:
    from spectool.runtime.sampling.verification import Draw


class ModelDrafter(Drafter):
    """Drafts of a model with a cache of its own, of any kind: the most probable tokens, or drawn ones.

    The cache outlives a generation. ``start`` feeds only what differs from what was fed before, so that the next turn
    of a conversation costs the new turn only.
    """

    name = "model"
    costs_a_pass = True
    cache: TextCache

    def __init__(self, model: Any, *, min_probability: float = 0.0) -> None:
        """Draft with ``model``, an mlx-lm model whose token ids are the target's.

        Above 0, ``min_probability`` (0..1) evaluates each draft by itself, and makes no further pass once the most
        probable tokens are all right with less than this. The same holds where drafts are drawn, because the target
        accepts them more often where the draft model is surer of one token.
        """
        self.cache = TextCache(model)
        self._min_probability = min_probability
        self._least = math.log(min_probability) if min_probability > 0 else -math.inf
        self._pending: list[int] = []
        self._ahead = 0
        self._draw: Draw | None = None
        self._vocabulary = vocabulary_size(model)

    def fork(self) -> "ModelDrafter":
        """A drafter with the same model, and a cache of its own."""
        return ModelDrafter(self.cache.model, min_probability=self._min_probability)

    def draw_with(self, draw: "Draw | None") -> None:
        """Draw drafts by ``draw``; None takes the most probable ones."""
        self._draw = draw

    def start(self, prompt: Sequence[int]) -> None:
        """Feed ``prompt`` without its last token, as far as the cache does not hold it."""
        require_tokens("draft model", prompt, self._vocabulary)
        self.cache.rewind(common_prefix(self.cache.tokens, prompt[:-1]))
        self._ahead, self._pending = 0, list(prompt[len(self.cache.tokens) :])
        self._feed_pending(keep=1)

    def propose(self, limit: int) -> Proposal:
        """At most ``limit`` tokens. Proposes nothing if called again before `commit`."""
        return alone(self.drafting(limit), self.cache)

    def drafting(self, limit: int) -> Drafting[Proposal]:
        """The same, step by step."""
        if limit <= 0 or not self._pending:
            return Proposal((), self.name)
        self._feed_pending(keep=PREFILL_TOKENS)
        drafts, probabilities, distribution, fed = yield from self._draft(limit)
        self.cache.tokens += self._pending + drafts[:fed]
        self._pending, self._ahead = [], fed
        return Proposal(drafts, self.name, probabilities, distribution)

    def commit(self, tokens: Sequence[int]) -> None:
        """Keep the drafts that were right and take the others back; the rest of ``tokens`` is pending."""
        require_tokens("draft model", tokens, self._vocabulary)
        sure = len(self.cache.tokens) - self._ahead
        right = accepted_length(self.cache.tokens[sure:], tokens)
        self._pending = [*self.cache.rewind(sure + right), *self._pending, *tokens[right:]]
        self._ahead = 0

    def _draft(self, limit: int) -> Drafting[tuple[list[int], list[float], mx.array | None, int]]:
        """Feed the pending tokens and draft after draft.

        Returns:
            Drafts, the probability of the most probable token at each of them, their distributions, and how many of
            them were fed.
        """
        draw, distributions = self._draw, list[mx.array]()
        history = mx.array(self.cache.tokens + self._pending) if draw is not None and draw.processors else None

        def drawn(logits: mx.array) -> mx.array | None:
            nonlocal history
            found = None if draw is None else draw(logits, history)
            if found is None:
                return None
            token, distribution = found
            distributions.append(distribution)
            history = None if history is None else mx.concatenate([history, token.astype(history.dtype)])
            return token

        choose = most_probable if draw is None else drawn
        chain = yield from draft_chain(_as_is, self._pending, limit, least=self._least, choose=choose)
        if not chain.tokens:
            return [], [], None, chain.fed
        tokens, probabilities = mx.concatenate(chain.tokens), mx.exp(mx.stack(chain.highest))
        yield [tokens, probabilities]
        drawn_from = mx.concatenate(distributions) if distributions else None
        return evaluated(tokens), cast("list[float]", probabilities.tolist()), drawn_from, chain.fed

    def _feed_pending(self, keep: int) -> None:
        """Feed all but the last ``keep`` pending tokens."""
        tokens = self._pending[:-keep]
        if tokens:
            self.cache.prefill(tokens)
            self._pending = self._pending[-keep:]


def _as_is(logits: mx.array) -> mx.array:
    return logits


def vocabulary_mismatch(draft: Mapping[str, int], target: Mapping[str, int]) -> str | None:
    """Why a model with one ``get_vocab()`` cannot draft for another as it is; None if it can.

    They must give the same id to every token they share, which must be at least half of them. Tokens that only one of
    them has are allowed, since models of one family differ in added tokens.
    """
    shared = draft.keys() & target.keys()
    wrong = sorted(token for token in shared if draft[token] != target[token])
    if wrong:
        token = wrong[0]
        return (
            f"draft model: expected the target's token ids, got {len(wrong)} different ones "
            f"({token!r} is {draft[token]} in the draft, {target[token]} in the target). "
            "Use a draft model with the target's tokenizer."
        )
    if 2 * len(shared) < max(len(draft), len(target)):
        return (
            f"draft model: expected the target's vocabulary ({len(target)} tokens), got one of "
            f"{len(draft)} with {len(shared)} in common. Use a draft model with the target's tokenizer."
        )
    return None
