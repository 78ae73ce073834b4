"""The interface of drafters, for the generation loop and the emulator.

One generation is ``start(prompt)`` and then, in every cycle, ``propose(limit)`` and ``commit(tokens)``. A drafter
learns what became of its proposal only from the tokens that the target committed.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from spectool.tokenization.incremental.common_prefix import common_prefix

if TYPE_CHECKING:
    import mlx.core as mx

    from spectool.runtime.caches.text_cache import TextCache
    from spectool.runtime.draft_length.controller import Controller
    from spectool.runtime.sampling.verification import Draw


class Proposal(NamedTuple):
    """Draft tokens for the next positions, in the target's vocabulary.

    Attributes:
        tokens: Target token ids, at most the limit asked for; empty when there is no guess.
        source: Name of the drafter that made it.
        probabilities: The drafter's estimate for each token when those before it are right; empty if it makes none.
        distribution: What the leading tokens were drawn from, float32 [drawn, target vocabulary]; None where none was
            drawn. The output relies on it, and on nothing else here: the tokens must have been drawn from it, and how
            many of them are used must be decided before they are drawn.
    """

    tokens: Sequence[int]
    source: str
    probabilities: Sequence[float] = ()
    distribution: "mx.array | None" = None

    @property
    def stated(self) -> Sequence[float]:
        """How sure the drafter is of each token: entirely, where it does not say."""
        return self.probabilities or (1.0,) * len(self.tokens)

    def cut(self, limit: int) -> "Proposal":
        """The proposal of the first ``limit`` tokens."""
        drawn = None if self.distribution is None else self.distribution[:limit]
        return Proposal(tuple(self.tokens)[:limit], self.source, tuple(self.probabilities)[:limit], drawn)


NOTHING = Proposal((), "")
"""No guess."""


def warn_switched_off(drafter: "Drafter", error: Exception) -> None:
    """Log that ``drafter`` failed and is not asked again in this generation."""
    logging.getLogger(__name__).warning(
        "drafter %r is switched off for this generation: %s: %s. "
        "Decoding goes on without it; the output does not change.",
        drafter.name,
        type(error).__name__,
        error,
    )


class Drafter:
    """Guesses the target's next tokens. Subclasses inherit what they do not need.

    Implementations keep their own history. They may raise: the loop then switches them off with a warning and continues
    without them, so no output depends on a drafter.

    Attributes:
        name: Name in statistics.
        costs_a_pass: Whether each draft token costs a forward pass of a model.
        cache: Cache of its draft model; None where there is none.
        costs: Knows what passes cost; None where the draft length is fixed, or other texts share the pass. The loop
            sets it before each proposal.
        report: Called with each drafter inside this one that fails. The loop replaces it to count failures.
    """

    name: str = "drafter"
    costs_a_pass: bool = False
    costs: "Controller | None" = None
    cache: "TextCache | None" = None
    report: Callable[["Drafter", Exception], None] = staticmethod(warn_switched_off)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.name}>"

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a generation after ``prompt`` (token ids); forget any earlier one."""

    def propose(self, limit: int) -> Proposal:
        """Guess at most ``limit`` (>= 0) next tokens, without adding them to the history."""
        raise NotImplementedError

    def commit(self, tokens: Sequence[int]) -> None:
        """Add the tokens (at least one) that the target committed in this cycle to the history."""

    def extend(self, tokens: Sequence[int], limit: int) -> Proposal:
        """Guess at most ``limit`` tokens after ``tokens`` of another drafter; by default none."""
        return Proposal((), self.name)

    def fork(self) -> "Drafter | None":
        """A drafter like this one for another text at the same time, sharing what is only read; by default None."""
        return None

    def draw_with(self, draw: "Draw | None") -> None:
        """Draw drafts by ``draw`` from the next ``start`` on, if possible; None takes the most probable ones."""


class Cycle(NamedTuple):
    """One propose-verify-commit cycle, for displays and logs.

    Attributes:
        proposal: Draft tokens that were verified; empty for a plain cycle.
        source: Name of the drafter that made them; empty for a plain cycle.
        accepted: Length of the prefix of ``proposal`` that the target agreed with.
        committed: The accepted tokens, then one of the target's own, unless a stop token among them ended the text.
        draft_seconds: Time of the drafter, in ``propose`` and ``commit``.
        pass_seconds: Time of the target, from the proposal to the committed tokens. A pass that began ahead counts from
            the end of the one before it.
    """

    proposal: tuple[int, ...]
    source: str
    accepted: int
    committed: tuple[int, ...]
    draft_seconds: float = 0.0
    pass_seconds: float = 0.0


accepted_length = common_prefix
"""Number of leading tokens of a draft, the first argument, that equal the target's tokens, the second."""
