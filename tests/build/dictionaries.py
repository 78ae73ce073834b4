"""Small dictionaries for tests, written from lists of entries."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spectool.artifacts.dictionary import Dictionary, Entry, dictionary_arrays

SMALL: dict[str, Any] = {"name": "small", "fingerprint": "a" * 64, "size": 1000}
Row = tuple[Sequence[int], int, float]


def written(
    path: Path,
    rows: Iterable[Row | Entry],
    tokenizer: Mapping[str, Any] = SMALL,
    arguments: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> Dictionary:
    """Write a dictionary and open it."""
    entries = [row if isinstance(row, Entry) else Entry(*row) for row in rows]
    contexts = np.full((len(entries), max(len(each.context) for each in entries)), -1)
    for row, each in zip(contexts, entries, strict=True):
        row[: len(each.context)] = each.context[::-1]
    following, probability = zip(*((each.token, each.probability) for each in entries), strict=True)
    arrays, shape = dictionary_arrays(contexts, np.array(following), np.array(probability))
    Dictionary.write(
        path, arrays, arguments=arguments or {}, tokenizers={"target": tokenizer}, inputs=inputs or {}, statistics=shape
    )
    return Dictionary(path)
