"""Options of counting, in a module of their own because commands take their defaults from here when they start."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CountOptions:
    """Arguments of a count. Only orders and minimum count shape the result."""

    orders: int | None = None  # longest n-gram; by default 8 tokens
    min_count: int = 2  # n-grams that occur less often are left out
    memory: int = 4 * 10**9  # bytes
