"""What every drafter looks like to the generation loop and to the emulator.

One generation is ``start(prompt)`` and then, cycle after cycle, ``propose(limit)`` and
``commit(tokens)``. The loop owns the truth: a drafter learns what became of its proposal
only from the tokens that the target committed.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable


class Proposal(NamedTuple):
    """Draft tokens for the next positions, in the target's vocabulary.

    Attributes:
        tokens: Target token ids, at most the limit asked for; empty when there is no guess.
        source: Name of the drafter that made it, for statistics and colours.
    """

    tokens: Sequence[int]
    source: str


@runtime_checkable
class Drafter(Protocol):
    """Guesses the target's next tokens; never decides anything.

    Implementations keep their own history. They may raise: the loop then switches them off
    with a warning and goes on without them, so no output depends on a drafter.
    """

    name: str

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a generation after ``prompt`` (token ids); forget any earlier one."""

    def propose(self, limit: int) -> Proposal:
        """Guess at most ``limit`` (>= 0) next tokens. Must not count them as committed."""

    def commit(self, tokens: Sequence[int]) -> None:
        """Take note of the tokens (ids, at least one) that the target committed in this cycle."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """One propose-verify-commit cycle, for displays and logs.

    Attributes:
        proposal: Draft tokens that were verified; empty for a plain step.
        source: Name of the drafter that made them; empty for a plain step.
        accepted: How many of ``proposal`` the target agreed with (a prefix of it).
        committed: Tokens that the target committed: the accepted ones, then one of its own
            (the last is an accepted one where a stop token inside the draft ended the text).
    """

    proposal: tuple[int, ...]
    source: str
    accepted: int
    committed: tuple[int, ...]


def accepted_length(draft: Sequence[object], target: Sequence[object]) -> int:
    """Return how many leading tokens of ``draft`` are equal to those of ``target``.

    >>> accepted_length([4, 5, 6], [4, 5, 9, 1])
    2
    """
    for count, (guess, truth) in enumerate(zip(draft, target, strict=False)):
        if guess != truth:
            return count
    return min(len(draft), len(target))


def warn_switched_off(drafter: Drafter, error: Exception) -> None:
    """Warn that ``drafter`` failed and is not asked again in this generation."""
    name = getattr(drafter, "name", type(drafter).__name__)
    warnings.warn(
        f"drafter {name!r} is switched off for this generation: {type(error).__name__}: {error}. "
        "Decoding goes on without it; the output does not change.",
        RuntimeWarning,
        stacklevel=2,
    )
