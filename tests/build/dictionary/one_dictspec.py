"""The twin of `NestedDictSpec`: one dictionary, by counting every split of every n-gram in a table of its own."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from spectool.artifacts.dictionary import Entry
from spectool.build.dictionary.options import Reading

Tokens = tuple[int, ...]


def build_entries(
    ngrams: Iterable[tuple[Sequence[int], int]],
    min_probability: float,
    reading: Reading = "path",
    max_prefix: int = 8,
    max_continuation: int = 8,
) -> Iterator[Entry]:
    """Turn tokenized n-grams into dictionary entries, by ascending prefix.

    Args:
        ngrams: Token ids and count of each n-gram.
        min_probability: Smallest probability to keep, 0..1.
        reading: What that probability is of. ``whole``: the stored continuation as a whole, as the paper writes it.
            ``path``: the tokens follow the most probable next token one by one. The continuation is cut where the
            product of probabilities falls below the minimum.
        max_prefix: Longest prefix, in tokens; of a longer one the last tokens count.
        max_continuation: Longest continuation, in tokens.

    Source: section 3.1 ("for each prefix we retain only the most probable continuation above a
    minimum probability threshold, truncating both prefixes and completions to at most 8 tokens").
    """
    choose = _most_probable if reading == "whole" else _most_probable_path
    continuations = _continuation_counts(ngrams, max_prefix, max_continuation)
    for prefix in sorted(continuations):
        counts = continuations[prefix]
        total = sum(counts.values())
        continuation, probability = choose(counts, total, min_probability)
        if continuation and probability >= min_probability:
            yield Entry(_tokens(prefix), _tokens(continuation), probability, total)


def without_redundant(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Drop entries whose longest kept proper suffix proposes the same continuation.

    Look-up takes the longest known suffix of the history, so no proposal changes. Yields short
    prefixes first.
    """
    by_length = sorted(entries, key=lambda entry: len(entry.context))
    kept: dict[Tokens, Tokens] = {}
    for entry in by_length:
        suffixes = (entry.context[start:] for start in range(1, len(entry.context)))
        fallback = next((kept[suffix] for suffix in suffixes if suffix in kept), None)
        if fallback != entry.continuation:
            kept[entry.context] = entry.continuation
            yield entry


def _continuation_counts(
    ngrams: Iterable[tuple[Sequence[int], int]], max_prefix: int, max_continuation: int
) -> dict[str, dict[str, int]]:
    """Count the continuations of every prefix, over every split of every n-gram.

    Token sequences are strings here, one code point per token id. Millions of them are hashed and sliced, and strings
    do both several times faster than tuples.
    """
    counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for tokens, count in ngrams:
        text = "".join(map(chr, tokens))
        for cut in range(1, len(text)):
            following = counts[text[max(0, cut - max_prefix) : cut]]
            continuation = text[cut : cut + max_continuation]
            following[continuation] = following.get(continuation, 0) + count
    return counts


def _tokens(text: str) -> Tokens:
    return tuple(map(ord, text))


# Probabilities are compared as quotients: 7 of 100 reach 0.07, but 7 >= 0.07 * 100 is false.


def _most_probable(counts: dict[str, int], total: int, floor: float) -> tuple[str, float]:
    """The continuation with the highest count; of equals the shortest, then the smallest ids."""
    best = min(counts, key=lambda continuation: (-counts[continuation], len(continuation), continuation))
    return best, counts[best] / total


def _most_probable_path(counts: dict[str, int], total: int, floor: float) -> tuple[str, float]:
    """Follow the next token with the highest count while the path's probability is at least ``floor``."""
    path, mass = "", total
    while True:
        depth = len(path)
        following: dict[str, int] = {}
        for continuation, count in counts.items():
            if len(continuation) > depth:
                following[continuation[depth]] = following.get(continuation[depth], 0) + count
        if not following:
            return path, mass / total
        token = min(following, key=lambda token: (-following[token], token))
        if following[token] / total < floor:
            return path, mass / total
        path, mass = path + token, following[token]
        counts = {c: n for c, n in counts.items() if len(c) > depth and c[depth] == token}
