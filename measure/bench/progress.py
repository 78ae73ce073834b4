"""Who is told how far a run is."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """Told how far a run is.

    Attributes:
        begin: Called once with the generations that were measured before, and with all.
        step: Called after each generation.
        say: Called with a phrase when something begins.
    """

    begin: Callable[[int, int], object] = lambda done, total: None
    step: Callable[[], object] = lambda: None
    say: Callable[[str], object] = lambda phrase: None
