"""llama.cpp's lookup cache: a file of n-grams, each with the tokens that were seen after it and how often.

    record    tokens     int32[4]    the n-gram, oldest first; -1 in the places that are left over
              followers  int32       number of the pairs that follow, at least 1
              pairs      int32[2]    token and count (at least 1), ``followers`` times

Records follow each other up to the end of the file, in no particular order: no header, no version, no
tokenizer. Numbers are in the byte order of the machine; every one that llama.cpp is common on is
little-endian, and so is this module.

A static cache is asked for the last 2 tokens, a dynamic one for the last 4, 3, 2 and 1, in this order.

Source: ``common/ngram-cache.h`` and ``.cpp`` of llama.cpp, unchanged in its layout since 2024.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from spectool import ArtifactError
from spectool.artifacts.atomic import renaming

LONGEST_NGRAM = 4  # tokens of an n-gram
STATIC = 2  # tokens of the n-grams of a static cache
NO_TOKEN = -1

Ngram = tuple[int, ...]
TokenCounts = Mapping[int, int]
"""Token -> count."""


def write_cache(path: Path, ngrams: Iterable[tuple[Ngram, TokenCounts]]) -> int:
    """Write a lookup cache, and return its number of n-grams; ``path`` is replaced in one step when all is written.

    Args:
        path: The file.
        ngrams: 1 to 4 token ids, oldest first, with their followers. `NO_TOKEN` among these stands for
            other tokens: llama.cpp counts it and never drafts it.

    Raises:
        ArtifactError: It cannot be written there.
    """
    number = 0
    try:
        with renaming(path) as partial, partial.open("wb") as stream:
            for ngram, followers in ngrams:
                padding = [NO_TOKEN] * (LONGEST_NGRAM - len(ngram))
                pairs = [value for pair in followers.items() for value in pair]
                stream.write(np.array([*ngram, *padding, len(followers), *pairs], dtype="<i4").tobytes())
                number += 1
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be written ({error.strerror}). Choose another -o") from error
    return number


def read_cache(path: Path) -> Iterator[tuple[Ngram, dict[int, int]]]:
    """Read a lookup cache, record after record.

    Raises:
        ValueError: It is not one, from the record on that would come next.
        OSError: It cannot be read.
    """
    values = np.memmap(path, dtype="<i4", mode="r") if path.stat().st_size else np.zeros(0, dtype="<i4")
    at = 0
    while at < len(values):
        start = at + LONGEST_NGRAM + 1
        *tokens, followers = values[at:start].tolist()
        ngram = tuple(token for token in tokens if token != NO_TOKEN)
        pairs = values[start : start + 2 * followers].tolist()
        counts = dict(zip(pairs[::2], pairs[1::2], strict=True))
        whole = len(tokens) == LONGEST_NGRAM and followers >= 1 and len(counts) == followers
        if not (whole and ngram and tokens[: len(ngram)] == list(ngram) and min(ngram) >= 0):
            raise ValueError(f"no n-gram at byte {4 * at}")
        if min(counts) < NO_TOKEN or min(counts.values()) < 1:
            raise ValueError(f"a negative id or count at byte {4 * start}")
        yield ngram, counts
        at = start + 2 * followers


def check_cache_replaceable(path: Path) -> None:
    """Check that a lookup cache may replace what is at ``path``. Reads all of it.

    Raises:
        ArtifactError: Something else is there.
    """
    if not path.exists():
        return
    try:
        for _ in read_cache(path):
            pass
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"{path}: exists and is no lookup cache of llama.cpp, so it is not replaced. Choose another -o, or remove "
            "it first"
        ) from error
