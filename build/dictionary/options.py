"""Options of building and merging, in a module of their own because commands take their defaults from here."""

from dataclasses import dataclass
from typing import Literal

DictSpecReading = Literal["whole", "path"]


@dataclass(frozen=True)
class Limits:
    """The maximum size of a dictionary; the entries with the highest expected gain are kept."""

    entries: int | None = None
    max_bytes: int | None = None  # of the data files


@dataclass(frozen=True)
class BackoffOptions(Limits):
    """Arguments of the backoff method."""

    max_bytes: int | None = 5_000_000
    max_context: int = 6  # tokens
    # Lower ones drafted held-out text no better.
    discount: float = 0.9  # taken off every count by the smoothing


@dataclass(frozen=True)
class DictSpecOptions:
    """Arguments of the DictSpec method (section 4.4 of the paper)."""

    orders: str = "n123"  # longest n-gram: n1, n12 or n123
    entries: int = 200_000  # most frequent n-grams to take, of all orders together
    min_probability: float = 0.2
    # what must reach it: a continuation as a whole, or the path of most probable tokens, cut where it falls below
    reading: DictSpecReading = "path"
    max_prefix: int = 8  # tokens of a context
    max_continuation: int = 8  # tokens
