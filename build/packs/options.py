"""Options of packs, in a module of their own because commands take their defaults from here."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PackOptions:
    """What a pack keeps."""

    max_bytes: int = 2_000_000  # of the arrays
    orders: int = 4  # pieces of the longest n-gram; a fifth gains nothing
    min_count: int = 2  # n-grams of more than two pieces occur twice at least
    min_names: int = 10  # occurrences of pieces that are not in lower case, such as names
