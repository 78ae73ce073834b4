"""MLX's random state, which all generations of a thread share.

A generation with a seed draws from a state of its own and leaves the shared one as it was, also between two tokens. One
that fails puts the state back: mlx-lm's samplers are compiled over it, and when such a function raises, the state is a
placeholder that can never be evaluated.
"""

import random
from typing import cast

import mlx.core as mx


class Randomness:
    """A context manager for each cycle of one generation, with the state of a 64-bit ``seed`` or the shared one."""

    def __init__(self, seed: int | None = None) -> None:
        self._own = None if seed is None else mx.random.key(seed)
        self._before: mx.array | None = None

    def __enter__(self) -> None:
        self._before = state()
        if self._own is not None:
            put_back(self._own)

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._own is not None and kind is None:
            self._own = state()
        if self._before is not None and (self._own is not None or kind is not None):
            put_back(self._before)

    def renew(self) -> None:
        """Within it, after something failed: draw from a state that depends on nothing that was drawn there."""
        if (entered := self._before if self._own is None else self._own) is not None:
            mx.random.seed(random.Random(repr(entered.tolist())).getrandbits(64))  # no secret

    def unread(self) -> list[mx.array]:
        """What to evaluate together with a cycle's tokens, so that the next cycle need not wait for it."""
        return [] if self._own is None else [self._own]


def state() -> mx.array:
    """MLX's random state: a key, perhaps not evaluated yet."""
    return cast(mx.array, mx.random.state[0])  # type: ignore[index]  # not in MLX's stubs


def put_back(key: mx.array) -> None:
    """Make ``key`` MLX's random state again."""
    high, low = cast("list[int]", key.tolist())
    mx.random.seed(high << 32 | low)
