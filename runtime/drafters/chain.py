"""Draft after draft of a model: each pass gives the token that the next one is fed."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import mlx.core as mx

from spectool.runtime.drafters.drafting import Drafting


class Chain(NamedTuple):
    """Drafts that follow each other; lazy.

    Attributes:
        tokens: The drafts, each [1].
        highest: Log-probability [] of the most probable token at each of them.
        fed: How many of the drafts were fed.
    """

    tokens: list[mx.array]
    highest: list[mx.array]
    fed: int


def most_probable(logits: mx.array) -> mx.array:
    """The token [1] of the greatest of ``logits`` [1, vocabulary]; lazy."""
    return mx.argmax(logits, axis=-1)


def draft_chain(
    read: Callable[[mx.array], mx.array],
    unfed: Sequence[int],
    limit: int,
    *,
    likely: mx.array | float = 0.0,
    least: float = -math.inf,
    choose: Callable[[mx.array], mx.array | None] = most_probable,
) -> Drafting[Chain]:
    """At most ``limit`` drafts, which are chained on the device, unless their probability decides where they end.

    Args:
        read: Logits as they count, from those of the model, both [tokens, vocabulary].
        unfed: What is fed first.
        limit: Most drafts.
        likely: Log-probability of what is drafted already.
        least: There is no further pass once the most probable tokens are all right with less than this log-probability.
        choose: Chooses a token [1] given logits [1, vocabulary]; None ends the drafts.
    """
    chain, feed = Chain([], [], 0), mx.array(list(unfed), dtype=mx.int32)
    while len(chain.tokens) < limit and (least == -math.inf or float(likely) >= least):
        logits = read((yield feed)[-1:])
        chain = chain._replace(fed=len(chain.tokens))
        chosen = choose(logits)
        if chosen is None:
            break
        feed = chosen.astype(mx.int32)
        chain.tokens.append(feed)
        scores = logits[0].astype(mx.float32)
        chain.highest.append(mx.max(scores) - mx.logsumexp(scores))
        likely = likely + chain.highest[-1]
        if least > -math.inf:
            yield [feed, likely]
    return chain
