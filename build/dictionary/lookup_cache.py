"""Dictionaries as llama.cpp's dynamic lookup caches.

llama.cpp drafts token after token. Each comes from the longest n-gram of at most 4 tokens that it finds and that passes
its thresholds: an n-gram of 1, 2, 3, 4 tokens needs 4, 3, 2, 2 occurrences, and 75, 66, 66, 66% of these must have the
token. That is a look-up with fixed thresholds. So an entry ``context -> token`` becomes the n-gram ``context ->
{token: count}``, with 100% for the token, and llama.cpp drafts it. Counts are raised to llama.cpp's least sample size,
because the dictionary has already decided that they are enough, and scaled down to at most 1,000, because llama.cpp
multiplies them with each other in 32 bits. An entry below a minimum probability is left out unless a shorter context,
which is less probable still, would then be used instead.

Contexts of more than 4 tokens cannot be written.

Source: the thresholds are those of ``common/ngram-cache.cpp`` in llama.cpp.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from spectool.artifacts.dictionary import Entry
from spectool.artifacts.llama_cpp import LONGEST_NGRAM, Ngram, TokenCounts

_LEAST_COUNT = {1: 4, 2: 3, 3: 2, 4: 2}  # llama.cpp's least sample sizes by n-gram length
_MOST_COUNTED = 1000


class Exported(NamedTuple):
    """N-grams for a cache, and what they leave out."""

    ngrams: dict[Ngram, TokenCounts]  # by their tokens
    entries: int  # entries of the dictionary that became n-grams of their own
    left_out: Counter[str]  # entries that could not, by the reason


def to_ngrams(entries: Iterable[Entry], min_probability: float) -> Exported:
    """The n-grams of a lookup cache that drafts as a dictionary with these entries does.

    An entry that is less probable than ``min_probability`` is not written.
    """
    seen: defaultdict[Ngram, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    total: defaultdict[Ngram, float] = defaultdict(float)
    written, left_out = 0, Counter[str]()
    proposing: set[Ngram] = set()
    for entry in sorted(entries, key=lambda entry: len(entry.context)):
        context = tuple(entry.context)
        if len(context) > LONGEST_NGRAM:
            left_out[f"their contexts are longer than the {LONGEST_NGRAM} tokens of a cache of llama.cpp"] += 1
        elif entry.probability < min_probability and not any(
            context[at:] in proposing for at in range(1, len(context))
        ):
            left_out[f"they are less probable than {min_probability}"] += 1
        else:
            written += 1
            proposing.add(context)
            seen[context][entry.token] += entry.count * entry.probability
            total[context] += entry.count
    ngrams = {ngram: _follower(len(ngram), seen[ngram], total[ngram]) for ngram in sorted(seen)}
    return Exported(ngrams, written, left_out)


def _follower(length: int, seen: dict[int, float], total: float) -> TokenCounts:
    """The most frequent token, the lowest of equals, with a count that passes llama.cpp's thresholds."""
    token = min(seen, key=lambda token: (-seen[token], token))
    return {token: min(_MOST_COUNTED, max(_LEAST_COUNT[length], round(total)))}
