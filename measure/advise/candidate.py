"""A drafter that is considered: what is known of it, and what it is expected to bring."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spectool.measure.advise.expect import Expectation
from spectool.measure.advise.figures import Figure
from spectool.measure.advise.pair import Pair

Kind = Literal["draft", "dictionary", "history"]


@dataclass(frozen=True)
class DraftModel:
    """What is known of a draft model, or of its tokenizer alone.

    Attributes:
        divergence: Distributions beside the target's; cross-entropy and KL in nats, acceptance by rejection sampling.
    """

    tokenizers: Pair  # its tokenizer beside the target's
    weights: Figure  # bytes
    cache: Figure  # bytes of keys and values of a whole context
    r: Figure  # plain passes of a draft step, by sizes
    divergence: dict[str, Any] | None = None


@dataclass(frozen=True)
class Candidate:
    """One drafter."""

    name: str  # as the user named it
    kind: Kind  # draft (a model, or the tokenizer of one), dictionary or history
    expectations: Sequence[Expectation]  # by draft length, as asked
    memory: Figure  # bytes that it and the target take, weights and caches
    fits: bool | None  # whether the machine has them; None where that is not known
    model: DraftModel | None = None  # what is known of its model; None for what is made of the target's tokens
    todo: tuple[str, ...] = ()  # commands that make up for what is missing, the last of them a benchmark
    notes: tuple[str, ...] = ()  # what a reader of the figures should know
    unmeasured: bool = False  # whether models are measured and this one is not, so that its bytes alone speak

    @property
    def fastest(self) -> Expectation | None:
        """The draft length of the highest expected speed; None where no speed is known."""
        return self._most(lambda each: each.speedup.value)

    @property
    def easiest(self) -> Expectation | None:
        """The draft length at which it gains most if it is always right; None where costs are not known."""
        return self._most(lambda each: each.best.value)

    def _most(self, speed: Callable[[Expectation], float | None]) -> Expectation | None:
        known = [(found, -place) for place, each in enumerate(self.expectations) if (found := speed(each)) is not None]
        return self.expectations[-max(known)[1]] if known else None
