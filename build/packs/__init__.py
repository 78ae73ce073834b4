"""Counts of a language that fit every tokenizer, because they are of words: from text to a pack, and to a dictionary.

In: corpora, or packs. Out: a pack; and from packs, the counts of a tokenizer's windows. Some packs come with spectool.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PackOptions:
    """What a pack keeps."""

    max_bytes: int = 2_000_000  # of the arrays
    orders: int = 4  # pieces of the longest n-gram; a fifth gains nothing
    min_count: int = 2  # n-grams of more than two pieces occur twice at least
    min_names: int = 10  # occurrences of pieces that are not in lower case, such as names


def bundled_packs() -> dict[str, Path]:
    """The packs that come with spectool, by the codes of their languages."""
    return {path.stem: path for path in sorted(Path(__file__).with_name("bundled").glob("*.pack"))}
