"""Dictionaries as llama.cpp's lookup caches.

llama.cpp drafts token after token. Each comes from the longest n-gram of at most 4 tokens that it finds and that passes
its thresholds. In a dynamic cache an n-gram of 1, 2, 3, 4 tokens needs 4, 3, 2, 2 occurrences, and 75, 66, 66, 66% of
these must have the token. A static cache has n-grams of 2 tokens only, which need 2 occurrences and 50%. That is a
chained look-up with fixed thresholds. So an entry ``context -> token`` becomes an n-gram

    certain     context -> {token: count}                          100% of them: llama.cpp drafts the token
    counted     context -> {token: count p, -1: count (1 - p)}     llama.cpp's own thresholds decide

where -1, llama.cpp's sign for no token, stands for all other tokens, which a dictionary does not name. llama.cpp counts
it in the sum, and looks at the next shorter n-gram where it is the most frequent one. Counts are raised to llama.cpp's
least sample size, because the dictionary has already decided that they are enough, and scaled down to at most 1,000,
because llama.cpp multiplies them with each other in 32 bits. An entry below a minimum probability is left out unless a
shorter context, which is less probable still, would then be used instead.

A continuation of several tokens becomes a chain of n-grams. Where chains meet, counts are added and the most frequent
token is taken. Contexts of more than 4 tokens cannot be written.

Source: the thresholds are those of ``common/ngram-cache.cpp`` in llama.cpp.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from spectool.artifacts.dictionary import Entry
from spectool.artifacts.llama_cpp import LONGEST_NGRAM, NO_TOKEN, STATIC, Ngram, TokenCounts

Kind = Literal["dynamic", "static"]
_LEAST_COUNT = {1: 4, 2: 3, 3: 2, 4: 2}  # llama.cpp's least sample sizes by n-gram length
_MOST_COUNTED = 1000


class Exported(NamedTuple):
    """N-grams for a cache, and what they leave out."""

    ngrams: dict[Ngram, TokenCounts]  # by their tokens
    entries: int  # entries of the dictionary that became n-grams of their own
    left_out: Counter[str]  # entries that could not, by the reason


def to_ngrams(entries: Iterable[Entry], kind: Kind, certain: bool, min_probability: float) -> Exported:
    """The n-grams of a lookup cache that drafts as a dictionary with these entries does, chained or not.

    ``certain`` states every token as the only one that was seen (see above). An entry that is less probable than
    ``min_probability`` is not written.
    """
    shortest, longest = (STATIC, STATIC) if kind == "static" else (1, LONGEST_NGRAM)
    seen: defaultdict[Ngram, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    total: defaultdict[Ngram, float] = defaultdict(float)
    written, left_out = 0, Counter[str]()
    proposing: set[Ngram] = set()
    for entry in sorted(entries, key=lambda entry: len(entry.context)):
        context = tuple(entry.context)
        if len(context) > longest:
            left_out[f"their contexts are longer than the {longest} tokens of a {kind} cache of llama.cpp"] += 1
        elif len(context) + len(entry.continuation) <= shortest:
            left_out[f"a static cache has contexts of exactly {STATIC} tokens"] += 1
        elif entry.probability < min_probability and not any(
            context[at:] in proposing for at in range(1, len(context))
        ):
            left_out[f"they are less probable than {min_probability}"] += 1
        else:
            written += 1
            proposing.add(context)
            for place, token in enumerate(entry.continuation):
                ngram = (*context, *entry.continuation[:place])[-longest:]
                if len(ngram) >= shortest:
                    seen[ngram][token] += entry.count * entry.probability
                    total[ngram] += entry.count
    ngrams = {ngram: _followers(len(ngram), seen[ngram], total[ngram], certain) for ngram in sorted(seen)}
    return Exported(ngrams, written, left_out)


def _followers(length: int, seen: Mapping[int, float], total: float, certain: bool) -> TokenCounts:
    """The most frequent token, the lowest of equals, and what is left for the others."""
    token = min(seen, key=lambda token: (-seen[token], token))
    whole = min(_MOST_COUNTED, max(_LEAST_COUNT[length], round(total)))
    if certain:
        return {token: whole}
    count = max(1, round(whole * seen[token] / total))
    return {token: count} if count >= whole else {token: count, NO_TOKEN: whole - count}
