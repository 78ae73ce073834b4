"""Draft after draft of a model: each pass gives the token that the next one is fed."""

import math
from collections.abc import Callable, Sequence

import mlx.core as mx

from spectool.runtime.drafters.drafting import Drafting


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
) -> Drafting[tuple[list[mx.array], list[mx.array], int]]:
    """At most ``limit`` drafts, which are chained on the device, unless their probability decides where they end.

    Args:
        read: Logits as they count, from those of the model, both [tokens, vocabulary].
        unfed: What is fed first.
        limit: Most drafts.
        min_probability: There is no further pass once the most probable tokens are all right with less than this.
        likely: Log-probability of what is drafted already.
        choose: Chooses a token [1] given logits [1, vocabulary]; None ends the drafts.

    Returns:
        The drafts, each [1], the log-probability [] of the most probable token at each of them, and how many were fed.
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
    return tokens, highest, fed
