"""Drafting step by step, so that the passes of a model serve several texts.

A *drafting* is a generator, which returns what it has drafted in the end:

    yields                        gets
    tokens, int32 [tokens]        their logits [tokens, vocabulary], from a pass of the model over its cache; lazy
    a list of arrays              nothing: they are evaluated, together with those of other texts
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    import mlx.core as mx

    from spectool.runtime.caches.text_cache import TextCache

_Result = TypeVar("_Result")
Drafting: TypeAlias = Generator["mx.array | list[mx.array]", Any, _Result]


def alone(drafting: Drafting[_Result], cache: "TextCache | None") -> _Result:
    """What one text drafts with a model, whose ``cache`` it does not share; None where it needs no passes."""
    found: Any = None
    while True:
        try:
            wanted = drafting.send(found)
        except StopIteration as end:
            result: _Result = end.value
            return result
        found = None
        if isinstance(wanted, list):
            import mlx.core as mx

            mx.eval(wanted)
        elif cache is not None:
            found = cache.feed(wanted)
