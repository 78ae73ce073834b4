"""Draft after draft of a model: each pass gives the token that the next one is fed.

A model drafts step by step, so that several texts can be drafted for in the same passes (`shared_drafts`). A *drafting*
is a generator. It yields what it needs and gets it, and returns what it has drafted in the end:

    yields                        gets
    tokens, int32 [tokens]        their logits [tokens, vocabulary], from a pass of the model over its cache; lazy
    a list of arrays              nothing: they are evaluated, together with those of other texts
"""

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import mlx.core as mx

from spectool.runtime.caches.text_cache import TextCache
from spectool.runtime.sampling.samplers import confidence

_Result = TypeVar("_Result")
Drafting: TypeAlias = Generator[mx.array | list[mx.array], Any, _Result]


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
        chain.highest.append(confidence(logits[0]))
        likely = likely + chain.highest[-1]
        if least > -math.inf:
            yield [feed, likely]
    return chain


def alone(drafting: Drafting[_Result], cache: TextCache | None) -> _Result:
    """What one text drafts with a model, whose ``cache`` it does not share; None where it needs no passes."""
    found: mx.array | None = None
    while True:
        try:
            wanted = drafting.send(found)
        except StopIteration as end:
            result: _Result = end.value
            return result
        found = None
        if isinstance(wanted, list):
            mx.eval(wanted)
        elif cache is not None:
            found = cache.feed(wanted)
