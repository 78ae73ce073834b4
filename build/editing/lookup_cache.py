"""Dictionaries and llama.cpp's lookup caches: what one can say of the other.

**Out.** llama.cpp drafts token after token. Each comes from the longest n-gram of at most 4 tokens that it finds and
that passes its thresholds. In a dynamic cache an n-gram of 1, 2, 3, 4 tokens needs 4, 3, 2, 2 occurrences. Of these 75,
66, 66, 66% must have the token. A static cache has n-grams of 2 tokens only, and takes 2 occurrences and 50%. That is a
chained look-up, with thresholds that are fixed. So an entry ``context -> token`` becomes an n-gram

    certain     context -> {token: count}                          100% of them: llama.cpp drafts the token
    counted     context -> {token: count p, -1: count (1 - p)}     llama.cpp's own thresholds decide

where -1, llama.cpp's sign for no token, stands for all other tokens, which a dictionary does not name. llama.cpp takes
it into the sum, and where it is the most frequent one looks at the next shorter n-gram. Counts are raised to
llama.cpp's least sample size, since the dictionary has already decided that they are enough. They are scaled down to at
most 1,000, since llama.cpp multiplies them with each other in 32 bits. An entry below a minimum probability is left
out, unless a shorter context would then speak in its place, less probably.

A continuation of several tokens becomes a chain of n-grams; where chains meet, counts are added and the most
frequent token is taken. Contexts of more than 4 tokens cannot be written.

**In.** Counts become probabilities by interpolated absolute discounting with a discount of one half,

    P(t | c) = (C(c t) - D) / C(c) + D F(c) / C(c) P(t | c'),    c' = c without its oldest token, F followers

so that what was seen once is not certain. N-grams with -1 come from a dictionary: their
probabilities are taken as they are.

Source: the thresholds are those of ``common/ngram-cache.cpp`` in llama.cpp.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from spectool import ArtifactError, SpectoolError
from spectool.artifacts.dictionary import Entry
from spectool.artifacts.llama_cpp import LONGEST, NO_TOKEN, STATIC, Followers, Ngram, read_cache
from spectool.artifacts.manifest import Manifest
from spectool.build.dictionary.options import Limits
from spectool.build.dictionary.selection import Prediction, Table, Text, as_text, longest_suffix, write_best
from spectool.build.inputs import Progress
from spectool.tokenization.tokenizer import Tokenizer

Kind = Literal["dynamic", "static"]
_LEAST_COUNT = {1: 4, 2: 3, 3: 2, 4: 2}  # llama.cpp's least sample sizes by n-gram length
_MOST_COUNTED = 1000
_DISCOUNT = 0.5


class Exported(NamedTuple):
    """N-grams for a cache, and what they leave out."""

    ngrams: dict[Ngram, Followers]  # by their tokens
    entries: int  # entries of the dictionary that became n-grams of their own
    left_out: Counter[str]  # entries that could not, by the reason


def to_ngrams(entries: Iterable[Entry], kind: Kind, certain: bool, min_probability: float) -> Exported:
    """Turn the entries of a dictionary, chained or not, into n-grams of the lookup cache that llama.cpp will use it as.

    ``certain`` states every token as the only one that was seen (see above); an entry that is less probable than
    ``min_probability`` is not written.
    """
    shortest, longest = (STATIC, STATIC) if kind == "static" else (1, LONGEST)
    seen: defaultdict[Ngram, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    total: defaultdict[Ngram, float] = defaultdict(float)
    written, left_out = 0, Counter[str]()
    proposing: Table = {}
    for entry in sorted(entries, key=lambda entry: len(entry.context)):
        context = tuple(entry.context)
        if len(context) > longest:
            left_out[f"their contexts are longer than the {longest} tokens of a {kind} cache of llama.cpp"] += 1
        elif len(context) + len(entry.continuation) <= shortest:
            left_out[f"a static cache has contexts of exactly {STATIC} tokens"] += 1
        elif entry.probability < min_probability and longest_suffix(as_text(context), proposing) is None:
            left_out[f"they are less probable than {min_probability}"] += 1
        else:
            written += 1
            if len(context) >= shortest:
                proposing[as_text(context)] = Prediction(tuple(entry.continuation), entry.probability, entry.count)
            for place, token in enumerate(entry.continuation):
                ngram = (*context, *entry.continuation[:place])[-longest:]
                if len(ngram) >= shortest:
                    seen[ngram][token] += entry.count * entry.probability
                    total[ngram] += entry.count
    ngrams = {ngram: _followers(len(ngram), seen[ngram], total[ngram], certain) for ngram in sorted(seen)}
    return Exported(ngrams, written, left_out)


def _followers(length: int, seen: Mapping[int, float], total: float, certain: bool) -> Followers:
    """Return the most frequent token, the lowest of equals, and what is left for the others."""
    token = min(seen, key=lambda token: (-seen[token], token))
    whole = min(_MOST_COUNTED, max(_LEAST_COUNT[length], round(total)))
    if certain:
        return {token: whole}
    count = max(1, round(whole * seen[token] / total))
    return {token: count} if count >= whole else {token: count, NO_TOKEN: whole - count}


def import_cache(
    file: Path, tokenizer: Tokenizer, out: Path, min_count: int, limits: Limits, progress: Progress
) -> Manifest:
    """Make a dictionary from a static or dynamic lookup cache and write it to ``out`` in one step.

    The tokenizer is that of the model the cache was made with; the file does not say which. N-grams that occur
    ``min_count`` times are kept.

    Raises:
        ArtifactError: Not a lookup cache, or of another tokenizer.
        SpectoolError: Nothing is left to write.
    """
    progress("reading")
    ngrams = list(read_cache(file))
    highest = max((max(*ngram, *followers) for ngram, followers in ngrams), default=-1)
    if highest >= tokenizer.size:
        raise ArtifactError(
            f"{file}: has token id {highest}, but {tokenizer.name} has only {tokenizer.size}. It was made with "
            "another model: give its tokenizer with --tokenizer"
        )
    progress("smoothing")
    predictions = to_predictions(ngrams, min_count, tokenizer.specials)
    if not predictions:
        raise SpectoolError(
            f"{file}: none of its {len(ngrams):,} n-grams occurs {min_count} times. Give a lower --min-count"
        )
    facts = {
        "arguments": {"method": "import", "format": "llama.cpp", "min_count": min_count},
        "tokenizers": {"target": tokenizer.identity},
        "inputs": {"corpus": file.name, "bytes": file.stat().st_size},
        "statistics": {"ngrams": len(ngrams)},
    }
    return write_best(out, predictions, True, limits, progress, facts)


def to_predictions(ngrams: Iterable[tuple[Ngram, Followers]], min_count: int, specials: frozenset[int]) -> Table:
    """Turn the n-grams of a lookup cache into the most probable token after each, the lowest of equals.

    Special tokens are never proposed; n-grams with them, or of less than ``min_count`` occurrences, are left out.
    """
    cache = {
        as_text(ngram): followers
        for ngram, followers in ngrams
        if specials.isdisjoint(ngram) and sum(followers.values()) >= min_count
    }
    predictions: Table = {}
    for context, followers in cache.items():
        allowed = [token for token in followers if token != NO_TOKEN and token not in specials]
        if allowed:
            token = min(allowed, key=lambda token: (-_probability(token, context, cache), token))
            probability = _probability(token, context, cache)
            predictions[context] = Prediction((token,), probability, sum(followers.values()))
    return predictions


def _probability(token: int, context: Text, cache: Mapping[Text, Followers]) -> float:
    """Return P(token | context), smoothed over the contexts that the cache has; 0 where it has none."""
    if not context:
        return 0.0
    followers = cache.get(context)
    if followers is None:
        return _probability(token, context[1:], cache)
    count, whole = followers.get(token, 0), sum(followers.values())
    if NO_TOKEN in followers:
        return count / whole
    shorter = _probability(token, context[1:], cache)
    return (max(count - _DISCOUNT, 0) + _DISCOUNT * len(followers) * shorter) / whole
