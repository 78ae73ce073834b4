"""Counts to a dictionary, by back-off.

In: counts and a tokenizer. Out: contexts, their best next token, and its probability.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class BackoffOptions:
    """Arguments of the backoff method; here, because commands take their defaults from them before numpy is loaded."""

    max_bytes: int = 5_000_000  # of the data files; the entries with the highest expected gain are kept
    max_context: int = 6  # tokens
    # Lower ones drafted held-out text no better.
    discount: float = 0.9  # taken off every count by the smoothing
    min_count: int = 2  # windows of tokens that occur less often are left out
