"""A drafter that is considered: what is known of it, and what it is expected to bring."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spectool.measure.advise.expect import Expectation
from spectool.measure.advise.figures import Figure
from spectool.measure.advise.pair import Pair
from spectool.measure.advise.sizes import Sizes

Kind = Literal["draft", "dictionary", "history"]


@dataclass(frozen=True, slots=True)
class DraftModel:
    """What is known of a draft model, or of its tokenizer alone.

    Attributes:
        pair: Its tokenizer beside the target's.
        sizes: What it weighs.
        r: Plain passes of a draft step, by sizes.
        divergence: Distributions beside the target's; cross-entropy and KL in nats, acceptance by rejection sampling.
    """

    pair: Pair
    sizes: Sizes
    r: Figure
    divergence: dict[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "tokenizers": self.pair.as_dict(),
            "weights": self.sizes.weights.as_dict(),
            "cache": self.sizes.cache.as_dict(),
            "r": self.r.as_dict(),
            "divergence": self.divergence,
        }


@dataclass(frozen=True, slots=True)
class Candidate:
    """One drafter.

    Attributes:
        name: As the user named it.
        kind: ``draft`` (a model, or the tokenizer of one), ``dictionary`` or ``history``.
        expectations: By draft length, as asked.
        memory: Bytes that it and the target take, weights and caches.
        fits: Whether the machine has them; None where nothing tells.
        model: What is known of its model; None for what is made of the target's tokens.
        todo: Commands that make up for what is missing, the last of them a benchmark.
        notes: What a reader of the figures should know.
        unmeasured: Whether models are measured and this one is not, so that its bytes alone speak.
    """

    name: str
    kind: Kind
    expectations: Sequence[Expectation]
    memory: Figure
    fits: bool | None
    model: DraftModel | None = None
    todo: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unmeasured: bool = False

    @property
    def fastest(self) -> Expectation | None:
        """The draft length of the highest expected speed; None where no speed is known."""
        known = [each for each in self.expectations if each.speedup.value is not None]
        return max(known, key=lambda each: each.speedup.value or 0.0, default=None)

    @property
    def easiest(self) -> Expectation | None:
        """The draft length at which it gains most if it is always right; None where costs are not known."""
        known = [each for each in self.expectations if each.best.value is not None]
        return max(known, key=lambda each: each.best.value or 0.0, default=None)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "name": self.name,
            "kind": self.kind,
            "expectations": [each.as_dict() for each in self.expectations],
            "memory": self.memory.as_dict(),
            "fits": self.fits,
            "model": None if self.model is None else self.model.as_dict(),
            "todo": list(self.todo),
            "notes": list(self.notes),
        }
