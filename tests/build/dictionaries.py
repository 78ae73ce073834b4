"""Small dictionaries for tests, written from lists of entries."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from spectool.artifacts.atomic import atomic_directory
from spectool.artifacts.dictionary import Dictionary, Entry, write_dictionary

SMALL: dict[str, Any] = {"name": "small", "fingerprint": "a" * 64, "size": 1000}
Row = tuple[Sequence[int], int, float, int]


def written(path: Path, rows: Iterable[Row], tokenizer: dict[str, Any] = SMALL) -> Dictionary:
    """Write a dictionary and open it."""
    with atomic_directory(path) as directory:
        shape = write_dictionary(directory, [Entry(*row) for row in rows])
        Dictionary.seal(directory, {}, {"target": tokenizer}, {}, shape)
    return Dictionary(path)


def rows_of(dictionary: Dictionary) -> dict[tuple[int, ...], tuple[int, float, int]]:
    """Return the entries of a dictionary by their contexts."""
    return {
        tuple(entry.context): (entry.token, round(entry.probability, 2), entry.count) for entry in dictionary.entries()
    }
