"""Drafts from a small model that shares the target's tokenizer.

    text      all committed tokens
    cache     holds the beginning of the text, and drafts of the last proposal, of which some may be wrong

A proposal of k tokens takes k passes: what the cache does not hold of the text gives d1, d1 gives d2, and dk is not
fed. They are chained on the device and evaluated once, unless their probability decides where they end.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx

from spectool.runtime.caches.text_cache import TextCache
from spectool.runtime.drafters.drafter import Drafter, Drafting, Proposal
from spectool.runtime.sampling.token_ids import require_tokens, vocabulary_size
from spectool.runtime.sampling.verification import evaluated
from spectool.tokenization.incremental.common_prefix import common_prefix

if TYPE_CHECKING:
    from spectool.runtime.sampling.verification import Draw


class ModelDrafter(Drafter):
    """Drafts of a model with a cache of its own, of any kind: the most probable tokens, or drawn ones.

    The cache outlives a generation, so that the next turn of a conversation costs the new turn only.
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
        self.cache, self._min_probability = TextCache(model), min_probability
        self._text, self._history = list[int](), mx.zeros(0, mx.int32)
        self._draw: Draw | None = None
        self._vocabulary = vocabulary_size(model)

    def fork(self) -> "ModelDrafter":
        """A drafter with the same model, and a cache of its own."""
        return ModelDrafter(self.cache.model, min_probability=self._min_probability)

    def draw_with(self, draw: "Draw | None") -> None:
        """Draw drafts by ``draw``; None takes the most probable ones."""
        self._draw = draw

    def known(self, prompt: Sequence[int]) -> int:
        """Leading tokens of a prompt that its cache holds."""
        return common_prefix(self.cache.tokens, prompt)

    def start(self, prompt: Sequence[int]) -> None:
        """Feed ``prompt`` without its last token, as far as the cache does not hold it."""
        require_tokens("draft model", prompt, self._vocabulary)
        self._text, self.cache.sure, self._history = list(prompt), 0, mx.zeros(0, mx.int32)
        self.cache.unfed(self._text, at_once=1)

    def drafting(self, limit: int) -> Drafting[Proposal]:
        """At most ``limit`` tokens, step by step."""
        if limit <= 0 or not self._text:
            return Proposal((), self.name)
        unfed = self.cache.unfed(self._text)
        draw, distributions = self._draw, list[mx.array]()
        history = None
        if draw is not None and draw.processors:
            latest = mx.array(self._text[self._history.size :], mx.int32)
            history = self._history = mx.concatenate([self._history, latest])

        def choose(logits: mx.array) -> mx.array | None:
            nonlocal history
            if draw is None:
                return most_probable(logits)
            if (found := draw(logits, history)) is None:
                return None
            token, distribution = found
            distributions.append(distribution)
            history = None if history is None else mx.concatenate([history, token.astype(history.dtype)])
            return token

        drafts, highest, fed = yield from draft_chain(
            lambda logits: logits, unfed, limit, min_probability=self._min_probability, choose=choose
        )
        self.cache.tokens += unfed + drafts[:fed]
        drawn_from = mx.concatenate(distributions) if distributions else None
        return Proposal(drafts, self.name, [math.exp(each) for each in highest], drawn_from)

    def commit(self, tokens: Sequence[int]) -> None:
        """Add ``tokens`` to the text; drafts that were wrong are taken back before the next ones."""
        require_tokens("draft model", tokens, self._vocabulary)
        self._text += tokens


def most_probable(logits: mx.array) -> mx.array:
    """The token [1] of the greatest of ``logits`` [1, vocabulary]; lazy."""
    return mx.argmax(logits, axis=-1)


def draft_chain(
    read: Callable[[mx.array], mx.array],
    unfed: Sequence[int],
    limit: int,
    *,
    min_probability: float,
    likely: mx.array | float = 0.0,
    choose: Callable[[mx.array], mx.array | None] = most_probable,
) -> Drafting[tuple[list[int], list[float], int]]:
    """At most ``limit`` drafts, which are chained on the device, unless their probability decides where they end.

    Args:
        read: Logits as they count, from those of the model, both [tokens, vocabulary].
        unfed: What is fed first.
        limit: Most drafts.
        min_probability: There is no further pass once the most probable tokens are all right with less than this.
        likely: Log-probability of what is drafted already.
        choose: Chooses a token [1] given logits [1, vocabulary]; None ends the drafts.

    Returns:
        The drafts, the log-probability of the most probable token at each of them, and how many were fed.
    """
    least = math.log(min_probability) if min_probability > 0 else -math.inf
    tokens, highest, fed, feed = list[mx.array](), list[mx.array](), 0, mx.array(list(unfed), dtype=mx.int32)
    while len(tokens) < limit and (least == -math.inf or float(likely) >= least):
        logits, fed = read((yield feed)[-1:]), len(tokens)
        chosen = choose(logits)
        if chosen is None:
            break
        feed = chosen.astype(mx.int32)
        tokens.append(feed)
        scores = logits[0].astype(mx.float32)
        highest.append(mx.max(scores) - mx.logsumexp(scores))
        likely = likely + highest[-1]
        if least > -math.inf:
            yield [feed, likely]
    if not tokens:
        return [], [], fed
    drafts, scores = mx.concatenate(tokens), mx.stack(highest)
    yield [drafts, scores]
    return evaluated(drafts), cast("list[float]", scores.tolist()), fed


def vocabulary_mismatch(draft: Mapping[str, int], target: Mapping[str, int]) -> str | None:
    """Why a model with one ``get_vocab()`` cannot draft for another as it is; None if it can.

    They must give the same id to every token they share, which must be at least half of them. Tokens that only one of
    them has are allowed, since models of one family differ in added tokens.
    """
    shared = draft.keys() & target.keys()
    wrong = sum(draft[token] != target[token] for token in shared)
    if not wrong and 2 * len(shared) >= max(len(draft), len(target)):
        return None
    return (
        f"draft model: expected the target's {len(target)} tokens with their ids, got {len(draft)}, of which the "
        f"target has {len(shared)}, and {wrong} of these with other ids. Use a draft model with the target's tokenizer."
    )
