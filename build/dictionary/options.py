"""Options of building, in a module of their own because commands take their defaults from here."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BackoffOptions:
    """Arguments of the backoff method."""

    max_bytes: int = 5_000_000  # of the data files; the entries with the highest expected gain are kept
    max_context: int = 6  # tokens
    # Lower ones drafted held-out text no better.
    discount: float = 0.9  # taken off every count by the smoothing
    min_count: int = 2  # windows of tokens that occur less often are left out
