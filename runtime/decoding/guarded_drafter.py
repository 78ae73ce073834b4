"""A drafter that may fail: it is then switched off with a warning, and the generation goes on without it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from spectool.runtime.decoding.statistics import DraftStatistics, Failure
from spectool.runtime.drafters.drafter import Drafter, warn_switched_off
from spectool.runtime.sampling.randomness import renew, state

if TYPE_CHECKING:
    from spectool.runtime.sampling.verification import Draw

_Result = TypeVar("_Result")


class GuardedDrafter:
    """A drafter in one generation, which it cannot end.

    Attributes:
        drafter: The drafter; None where there is none, or it has failed.
    """

    def __init__(self, drafter: Drafter | None, statistics: DraftStatistics, draw: "Draw | None" = None) -> None:
        """Guard ``drafter`` and add its failures to ``statistics``; it draws its drafts by ``draw`` if possible."""
        self.drafter, self._statistics, self._draw = drafter, statistics, draw
        self._missed: list[int] = []  # committed tokens that it has not been given yet

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a generation after ``prompt``."""

        def start(drafter: Drafter) -> None:
            drafter.report = self._report
            drafter.draw_with(self._draw)
            drafter.start(prompt)

        self.attempt(start)

    def attempt(self, act: Callable[[Drafter], _Result]) -> _Result | None:
        """What ``act`` returns for the drafter, once it has all committed tokens; None without one, or if it fails."""
        self._random = state()
        return self._attempt(act)

    def _attempt(self, act: Callable[[Drafter], _Result]) -> _Result | None:
        if self.drafter is None:
            return None
        try:
            if self._missed:
                missed, self._missed = tuple(self._missed), []
                self.drafter.commit(missed)
            return act(self.drafter)
        except Exception as error:
            self._report(self.drafter, error)
            self.drafter = None
            return None

    def commit(self, tokens: Sequence[int], *, later: bool) -> None:
        """Give the drafter what the target committed, at once or ``later``, when it is asked next."""
        if self.drafter is not None:
            self._missed += tokens
            if not later:
                self._attempt(lambda drafter: None)

    def _report(self, drafter: Drafter, error: Exception) -> None:
        """Count a drafter that failed, and warn. Also repair the random state, which a failing sampler breaks."""
        renew(self._random)  # what decides whether it fails must not decide what the target draws
        self._statistics.failures.append(Failure(drafter.name, f"{type(error).__name__}: {error}"))
        warn_switched_off(drafter, error)
