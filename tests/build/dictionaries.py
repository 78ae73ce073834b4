"""Small dictionaries for tests, written from lists of entries."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spectool.artifacts.dictionary import Dictionary, dictionary_arrays

SMALL: dict[str, Any] = {"name": "small", "fingerprint": "a" * 64, "size": 1000}
Row = tuple[Sequence[int], int, float]


def written(
    path: Path,
    rows: Iterable[Row],
    tokenizer: Mapping[str, Any] = SMALL,
    arguments: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> Dictionary:
    """Write a dictionary and open it."""
    oldest_first, following, probability = zip(*rows, strict=True)
    contexts = np.full((len(following), max(map(len, oldest_first))), -1)
    for row, context in zip(contexts, oldest_first, strict=True):
        row[: len(context)] = context[::-1]
    arrays, shape = dictionary_arrays(contexts, np.array(following), np.array(probability))
    Dictionary.write(
        path, arrays, arguments=arguments or {}, tokenizers={"target": tokenizer}, inputs=inputs or {}, statistics=shape
    )
    return Dictionary(path)


def entries_of(dictionary: Dictionary) -> dict[tuple[int, ...], tuple[int, float]]:
    """The token and its probability by context, read from the tree level by level."""
    contexts: list[tuple[int, ...]] = [()]
    for node in range(len(dictionary._entry)):
        children = dictionary._ranks[dictionary._first[node] : dictionary._first[node + 1]]
        contexts += [(int(dictionary.alphabet[rank]), *contexts[node]) for rank in children]
    found = [(context, number) for context, number in zip(contexts, dictionary._entry, strict=True) if number >= 0]
    return {each: (dictionary._next_token[n], (dictionary._probability[n] + 1) / 256) for each, n in found}
