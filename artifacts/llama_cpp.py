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

LONGEST = 4  # tokens of an n-gram
STATIC = 2  # tokens of the n-grams of a static cache
NO_TOKEN = -1

Ngram = tuple[int, ...]
Followers = Mapping[int, int]
"""Token -> count."""


def write_cache(path: Path, ngrams: Iterable[tuple[Ngram, Followers]]) -> int:
    """Write a lookup cache; ``path`` is replaced in one step when all is written.

    Args:
        path: The file.
        ngrams: 1 to 4 token ids, oldest first, with their followers. `NO_TOKEN` among these stands for
            other tokens: llama.cpp counts it and never drafts it.

    Returns:
        Number of n-grams.

    Raises:
        ArtifactError: It cannot be written there.
    """
    number = 0
    try:
        with renaming(path) as partial, partial.open("wb") as stream:
            for ngram, followers in ngrams:
                padding = [NO_TOKEN] * (LONGEST - len(ngram))
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
        ArtifactError: Not a lookup cache; the message says at which byte it stops being one.
    """
    try:
        size = path.stat().st_size
        if size % 4:
            raise _not_a_cache(path, size - size % 4, f"{size % 4} bytes too many for whole numbers")
        values = np.memmap(path, dtype="<i4", mode="r") if size else np.zeros(0, dtype="<i4")
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror}). Check the name and permissions") from error
    at = 0
    while at < len(values):
        head = values[at : at + LONGEST + 1].tolist()
        if len(head) <= LONGEST:
            raise _not_a_cache(path, 4 * at, "the file ends inside an n-gram")
        ngram = tuple(token for token in head[:LONGEST] if token != NO_TOKEN)
        if not ngram or head[: len(ngram)] != list(ngram) or min(ngram) < 0:
            raise _not_a_cache(path, 4 * at, f"{head[:LONGEST]} is no n-gram")
        followers = head[LONGEST]
        start = at + LONGEST + 1
        if followers < 1 or followers > (len(values) - start) // 2:
            raise _not_a_cache(path, 4 * (start - 1), f"{followers} followers, not 1 up to what is there")
        pairs = values[start : start + 2 * followers].tolist()
        counts = dict(zip(pairs[::2], pairs[1::2], strict=True))
        if len(counts) < followers or min(counts) < NO_TOKEN or min(pairs[1::2]) < 1:
            raise _not_a_cache(path, 4 * start, "a follower twice, or a negative id or count")
        yield ngram, counts
        at = start + 2 * followers


def check_replaceable(path: Path) -> None:
    """Check that a lookup cache may take the place of what is at ``path``. Reads all of it.

    Raises:
        ArtifactError: Something else is there.
    """
    if not path.exists():
        return
    try:
        if not path.is_file():
            raise ArtifactError(f"{path}: not a file")
        for _ in read_cache(path):
            pass
    except ArtifactError as error:
        raise ArtifactError(
            f"{path}: exists and is no lookup cache of llama.cpp, so it is not replaced. Choose another -o, or remove "
            "it first"
        ) from error


def _not_a_cache(path: Path, place: int, what: str) -> ArtifactError:
    return ArtifactError(
        f"{path}: not a lookup cache of llama.cpp: at byte {place:,}, {what}. Expected a file that llama-lookup, "
        "llama-lookup-create or `spectool export-dict` wrote"
    )
