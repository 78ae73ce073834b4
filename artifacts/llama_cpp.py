"""llama.cpp's lookup cache: a file of n-grams, each with the tokens that were seen after it and how often.

    record    tokens     int32[4]    the n-gram, oldest first; -1 in the places that are left over
              followers  int32       number of the pairs that follow, at least 1
              pairs      int32[2]    token and count (at least 1), ``followers`` times

Records follow each other up to the end of the file, in any order, without a header, a version or a tokenizer. Numbers
are in the machine's byte order, which is little-endian wherever llama.cpp is common. llama.cpp looks up the last
4, 3, 2 and 1 tokens, in this order, in a dynamic cache.

Source: ``common/ngram-cache.h`` and ``.cpp`` of llama.cpp, unchanged in its layout since 2024.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from spectool import ArtifactError
from spectool.artifacts.atomic import atomic_file

LONGEST_NGRAM = 4  # tokens of an n-gram
_NO_TOKEN = -1

Ngram = tuple[int, ...]
TokenCounts = Mapping[int, int]
"""Token -> count."""


def write_cache(path: Path, ngrams: Iterable[tuple[Ngram, TokenCounts]]) -> int:
    """Write a lookup cache, which appears at ``path`` when it is complete, and return its number of n-grams.

    Args:
        path: The file. An existing one is not replaced, because llama.cpp adds to its dynamic caches.
        ngrams: 1 to 4 token ids, oldest first, with their followers.

    Raises:
        ArtifactError: Something is there, or it cannot be written there.
    """
    if path.exists():
        raise ArtifactError(f"{path}: exists and is not replaced. Choose another name, or remove it first")
    number = 0
    try:
        with atomic_file(path) as partial, partial.open("wb") as stream:
            for ngram, followers in ngrams:
                padding = [_NO_TOKEN] * (LONGEST_NGRAM - len(ngram))
                pairs = [value for pair in followers.items() for value in pair]
                stream.write(np.array([*ngram, *padding, len(followers), *pairs], dtype="<i4").tobytes())
                number += 1
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be written ({error.strerror}). Choose another place") from error
    return number
