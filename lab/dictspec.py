"""The method ``dictspec``, as in the DictSpec paper: frequent n-grams, prefix -> most probable continuation.

    n-gram       персональний комп'ютер            (count 12,400)
    tokens       _пер сон аль ний _ком п' ют ер
    splits       _пер | сон аль ний _ком п' ...    one at each boundary between tokens
                 _пер сон аль ний _ком | п' ют ер

For every prefix the continuation with the highest count is kept, if its probability given the prefix reaches a minimum.
Prefixes and continuations hold at most 8 tokens. An entry whose longest kept proper suffix proposes the same is left
out: a look-up takes the longest known suffix, so no proposal changes.

Source: "Dictionary-Based Speculative Decoding for Non-Latin-Script Languages", section 3.1, Table 1 and section 4.4.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, NamedTuple

from spectool.lab.token_strings import TokenString, as_text, as_tokens, longest_suffix
from spectool.lab.words import word_runs
from spectool.runtime.drafters.drafter import Drafter, Proposal
from spectool.tokenization.tokenizer import Tokenizer

ORDERS = {"n1": 1, "n12": 2, "n123": 3}
PhraseReading = Literal["whole", "path"]


@dataclass(frozen=True)
class DictSpecOptions:
    """Arguments of the method (section 4.4 of the paper)."""

    orders: str = "n123"  # longest n-gram: n1, n12 or n123
    entries: int = 200_000  # most frequent n-grams to take, of all orders together
    min_probability: float = 0.2
    # what must reach it: a continuation as a whole, or the path of most probable tokens, cut where it falls below
    reading: PhraseReading = "path"
    max_prefix: int = 8  # tokens of a context
    max_continuation: int = 8  # tokens


class WordNgrams:
    """Exact counts of the word n-grams of texts, in memory. They depend on no tokenizer, so they serve any dictionary.

    Attributes:
        total: Number of words.
        counts: Occurrences of each n-gram, its words joined by spaces; orders 1, 2, ...
    """

    def __init__(self, texts: Iterable[str], max_order: int = 3) -> None:
        """Count the n-grams of up to ``max_order`` words; none crosses punctuation."""
        self.counts: list[Counter[str]] = [Counter() for _ in range(max_order)]
        for run in (run for text in texts for run in word_runs(text)):
            for order, counts in enumerate(self.counts, 1):
                counts.update(" ".join(run[start : start + order]) for start in range(len(run) - order + 1))
        self.total = self.counts[0].total()

    def most_frequent(self, size: int, max_order: int = 3) -> list[tuple[str, int]]:
        """The ``size`` most frequent n-grams of orders 1..max_order together, with their counts.

        They are sorted by falling count, then by order, then by text, so the choice does not depend on the order of
        the texts.
        """
        ngrams = (
            (-count, order, text)
            for order, counts in enumerate(self.counts[:max_order], 1)
            for text, count in counts.items()
        )
        return [(text, -count) for count, _, text in heapq.nsmallest(size, ngrams)]


class Phrase(NamedTuple):
    """What follows a context."""

    continuation: tuple[int, ...]  # tokens proposed
    probability: float  # of all of them, 0..1


PhraseTable = dict[TokenString, Phrase]
"""Context -> what follows it."""


def dictspec_table(tokenizer: Tokenizer, ngrams: WordNgrams, options: DictSpecOptions) -> PhraseTable:
    """The DictSpec dictionary of some text for the target's tokenizer."""
    chosen = ngrams.most_frequent(options.entries, ORDERS[options.orders])
    return without_redundant(predict(encoded_ngrams(tokenizer, chosen), options, tokenizer.specials))


class DictSpecDrafter(Drafter):
    """Drafts the phrase of the longest known suffix."""

    name = "dictionary"

    def __init__(self, table: PhraseTable, max_prefix: int = DictSpecOptions.max_prefix) -> None:
        self._table, self._max_prefix, self._history = table, max_prefix, ""

    def start(self, prompt: Sequence[int]) -> None:
        """Begin after ``prompt``."""
        self._history = as_text(prompt)[-self._max_prefix :]

    def propose(self, limit: int) -> Proposal:
        """At most ``limit`` tokens of one phrase."""
        found = longest_suffix(f" {self._history}", self._table)  # proper suffixes, so all of the history counts
        return Proposal(found.continuation[:limit] if found else (), self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        """Add committed tokens."""
        self._history = (self._history + as_text(tokens))[-self._max_prefix :]


def encoded_ngrams(tokenizer: Tokenizer, ngrams: Sequence[tuple[str, int]]) -> list[tuple[list[int], int]]:
    """The tokens of n-grams as they are spelled after a space, with their counts."""
    space = "" if tokenizer.leading_space else " "
    tokens = tokenizer.encode_batch(space + text for text, _ in ngrams)
    return list(zip(tokens, (count for _, count in ngrams), strict=True))


def predict(
    ngrams: Iterable[tuple[Sequence[int], int]], options: DictSpecOptions, specials: Set[int] = frozenset()
) -> PhraseTable:
    """The continuation of every prefix of some n-grams, given as token ids with counts, where one is probable enough.

    Of a prefix that is too long the last tokens count, of a continuation the first. ``specials`` stand for no text and
    must never be proposed, so n-grams are cut before the first.
    """
    return probable_continuations(continuations(ngrams, options, specials), options)


def probable_continuations(
    counted: Mapping[TokenString, dict[TokenString, int]], options: DictSpecOptions
) -> PhraseTable:
    """The continuation of every prefix, from the counts of `continuations`, where one is probable enough."""
    choose = _most_probable if options.reading == "whole" else _most_probable_path
    phrases: PhraseTable = {}
    for prefix, counts in counted.items():
        total = sum(counts.values())
        continuation, count = choose(counts, total, options.min_probability)
        # Compared as quotients: 7 of 100 reach 0.07, but 7 >= 0.07 * 100 is false.
        if continuation and count / total >= options.min_probability:
            phrases[prefix] = Phrase(as_tokens(continuation), count / total)
    return phrases


def without_redundant(phrases: PhraseTable) -> PhraseTable:
    """Those phrases whose longest kept proper suffix does not propose the same tokens; short prefixes first."""
    kept: PhraseTable = {}
    for context in sorted(phrases, key=len):
        fallback = longest_suffix(context, kept)
        if fallback is None or fallback.continuation != phrases[context].continuation:
            kept[context] = phrases[context]
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
