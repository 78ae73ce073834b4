"""The dictionaries of the DictSpec paper: frequent n-grams, prefix -> most probable continuation.

    n-gram       персональний комп'ютер            (count 12,400)
    tokens       _пер сон аль ний _ком п' ют ер
    splits       _пер | сон аль ний _ком п' ...    one at each boundary between tokens
                 _пер сон аль ний _ком | п' ют ер

For every prefix the continuation with the highest count is kept, if its probability given the prefix reaches a minimum.
Prefixes and continuations hold at most 8 tokens. An entry whose longest kept proper suffix proposes the same is left
out: a look-up takes the longest known suffix, so no proposal changes.

Source: "Dictionary-Based Speculative Decoding for Non-Latin-Script Languages", section 3.1, Table 1 and section 4.4.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import takewhile

from spectool.build.dictionary.options import DictSpecOptions
from spectool.build.dictionary.predictions import (
    Prediction,
    PredictionTable,
    TokenString,
    as_text,
    as_tokens,
    longest_suffix,
)


def predict(
    ngrams: Iterable[tuple[Sequence[int], int]], options: DictSpecOptions, specials: Set[int] = frozenset()
) -> PredictionTable:
    """The continuation of every prefix of some n-grams, where one is probable enough.

    Args:
        ngrams: Token ids and count of each n-gram.
        options: Minimum probability, what it is of, and the longest prefix and continuation. Of a longer prefix the
            last tokens count, of a longer continuation the first.
        specials: Tokens that stand for no text and must never be proposed: n-grams are cut before the first.
    """
    return predictions_of(continuations(ngrams, options, specials), options)


def predictions_of(counted: Mapping[TokenString, dict[TokenString, int]], options: DictSpecOptions) -> PredictionTable:
    """The continuation of every prefix, from the counts of `continuations`, where one is probable enough."""
    choose = _most_probable if options.reading == "whole" else _most_probable_path
    predictions: PredictionTable = {}
    for prefix, counts in counted.items():
        total = sum(counts.values())
        continuation, count = choose(counts, total, options.min_probability)
        # Compared as quotients: 7 of 100 reach 0.07, but 7 >= 0.07 * 100 is false.
        if continuation and count / total >= options.min_probability:
            predictions[prefix] = Prediction(as_tokens(continuation), count / total, total)
    return predictions


def without_redundant(predictions: PredictionTable) -> PredictionTable:
    """Those predictions whose longest kept proper suffix does not predict the same tokens; short prefixes first."""
    kept: PredictionTable = {}
    for context in sorted(predictions, key=len):
        fallback = longest_suffix(context, kept)
        if fallback is None or fallback.continuation != predictions[context].continuation:
            kept[context] = predictions[context]
    return kept


def continuations(
    ngrams: Iterable[tuple[Sequence[int], int]], options: DictSpecOptions, specials: Set[int]
) -> dict[TokenString, dict[TokenString, int]]:
    """The counts of the continuations of every prefix, over every split of every n-gram."""
    counts: defaultdict[TokenString, dict[TokenString, int]] = defaultdict(dict)
    for tokens, count in ngrams:
        if not specials.isdisjoint(tokens):
            tokens = list(takewhile(lambda token: token not in specials, tokens))
        text = as_text(tokens)
        for cut in range(1, len(text)):
            following = counts[text[max(0, cut - options.max_prefix) : cut]]
            continuation = text[cut : cut + options.max_continuation]
            following[continuation] = following.get(continuation, 0) + count
    return counts


def _most_probable(counts: dict[TokenString, int], total: int, least: float) -> tuple[TokenString, int]:
    """The continuation with the highest count; of equals the shortest, then the one with the lowest ids."""
    best = min(counts, key=lambda continuation: (-counts[continuation], len(continuation), continuation))
    return best, counts[best]


def _most_probable_path(counts: dict[TokenString, int], total: int, least: float) -> tuple[TokenString, int]:
    """The tokens with the highest count one after the other, while the path's probability is at least ``least``."""
    path, mass = "", total
    while len(counts) > 1:
        following: defaultdict[str, int] = defaultdict(int)
        for continuation, count in counts.items():
            if len(continuation) > len(path):
                following[continuation[len(path)]] += count
        token = min(following, key=lambda token: (-following[token], token))
        if following[token] / total < least:
            return path, mass
        path, mass = path + token, following[token]
        counts = {text: count for text, count in counts.items() if text.startswith(path)}
    ((whole, count),) = counts.items()
    return (whole, count) if count / total >= least else (path, mass)
