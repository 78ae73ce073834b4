"""All DictSpec dictionaries of a sweep at once: those of `build.dictionary.dictspec`, for every size and minimum.

Every size, minimum probability and reading of one list of n-grams shares what is computed once. Sizes are nested, the
most frequent n-grams first. So contexts are numbered in the order in which n-grams first show them, and a smaller
dictionary has the first of them. A minimum probability only shortens proposals: `Proposals.lengths` gives what is left
of each. A text to replay joins the same tree of contexts, so that a look-up is an array access.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spectool.artifacts.dictionary import Entry
from spectool.build.dictionary.options import DictSpecReading

Ints = NDArray[np.int64]
Ids = NDArray[np.int32]


class Proposals(NamedTuple):
    """What each context proposes, before a minimum probability shortens it."""

    tokens: Ids  # token ids, shape ``[longest continuation, contexts]``, -1 behind the end
    # what must reach the minimum for a proposal of 1, 2, ... tokens, same shape, falling; -1 behind the end
    probabilities: NDArray[np.float64]
    counts: Ints  # occurrences of the context in n-grams that go on after it, shape ``[contexts]``

    def lengths(self, min_probability: float) -> NDArray[np.int8]:
        """Return the tokens that each context still proposes, shape ``[contexts]``; 0 where nothing is stored."""
        lengths: NDArray[np.int8] = np.sum(self.probabilities >= min_probability, axis=0, dtype=np.int8)
        return lengths


class Drafts(NamedTuple):
    """What a dictionary does at every position of a replayed text, should a pass begin there; ``[tokens]``."""

    proposed: NDArray[np.int8]  # tokens proposed
    accepted: NDArray[np.int8]  # how many of them are right


class NestedDictSpec:
    """The dictionaries of the first 1, 2, ... of a list of n-grams, and the text that they are to draft for.

    Attributes:
        ends: Where the document of each token of the text ends, shape ``[tokens]``.
    """

    def __init__(
        self,
        ngrams: Sequence[Sequence[int]],
        counts: Ints,
        documents: Sequence[Sequence[int]] = (),
        specials: Collection[int] = (),
        max_prefix: int = 8,
        max_continuation: int = 8,
    ) -> None:
        """Prepare all that depends neither on a size nor on a minimum probability.

        Args:
            ngrams: Token ids of each n-gram, by falling count.
            counts: Occurrences, shape ``[n-grams]``.
            documents: Token ids of the documents to replay.
            specials: Tokens that stand for no text and must never be proposed: n-grams are cut before the first.
            max_prefix: Longest prefix, in tokens; of a longer one the last tokens count.
            max_continuation: Longest continuation, in tokens.
        """
        tokens, starts, ngram = _flat(ngrams, specials)
        text, text_starts, _ = _flat(documents)
        after = np.flatnonzero(np.arange(len(tokens)) > starts)  # a split before each of these tokens
        self._counts = counts
        self._text, self._tokens = text, tokens
        self._longest = max_continuation
        self.ends = _ends(text_starts)
        self._parents, contexts, self._looked_up = _contexts(
            np.concatenate([tokens, text]),
            np.concatenate([starts, text_starts + len(tokens)]),
            np.concatenate([after, len(tokens) + np.arange(len(text))]),
            len(after),
            max_prefix,
        )
        # Where each context ends and begins in some n-gram.
        self._context_ends = np.zeros(int(contexts.max(initial=-1)) + 1, dtype=np.int64)
        self._context_ends[contexts] = after
        self._context_starts = np.maximum(starts[self._context_ends], self._context_ends - max_prefix)
        ranks, self._tails, self._tail_lengths = _continuations(tokens, _ends(starts), max_continuation)
        tails = ranks[after]
        order = np.argsort(contexts.astype(np.int64) * len(self._tail_lengths) + tails)
        self._split_contexts, self._split_tails, self._split_ngrams = contexts[order], tails[order], ngram[after][order]

    def proposals(self, size: int, reading: DictSpecReading) -> Proposals:
        """Return what every context of the ``size`` most frequent n-grams proposes."""
        taken = self._split_ngrams < size
        contexts, tails = self._split_contexts[taken], self._split_tails[taken]
        counts = self._counts[self._split_ngrams[taken]]
        first = _first_of_run(contexts, tails)
        if not len(first):
            empty = np.zeros((self._longest, 0))
            return Proposals(empty.astype(np.int32), empty, np.zeros(0, dtype=np.int64))
        contexts, tails, counts = contexts[first], tails[first], np.add.reduceat(counts, first)
        return (self._whole if reading == "whole" else self._path)(contexts, tails, counts)

    def kept(self, proposals: Proposals, lengths: NDArray[np.int8]) -> Ints:
        """Return the contexts whose entries are stored: they propose something else than their longest known suffix."""
        found: Ints = np.flatnonzero(lengths)
        suffix = self._known(self._parents[found], lengths)
        redundant = (suffix >= 0) & (lengths[suffix] == lengths[found])
        for depth, row in enumerate(proposals.tokens):
            redundant &= (row[found] == row[suffix]) | (lengths[found] <= depth)
        stored: Ints = found[~redundant]
        return stored

    def entries(self, proposals: Proposals, lengths: NDArray[np.int8], contexts: Ints) -> Iterator[Entry]:
        """Yield the entries of some contexts, such as those that are `kept`."""
        ids, known = self._tokens.tolist(), lengths.tolist()
        for context in contexts.tolist():
            length = known[context]
            yield Entry(
                tuple(ids[self._context_starts[context] : self._context_ends[context]]),
                tuple(proposals.tokens[:length, context].tolist()),
                float(proposals.probabilities[length - 1, context]),
                int(proposals.counts[context]),
            )

    def drafts(self, proposals: Proposals, lengths: NDArray[np.int8], limit: int) -> Drafts:
        """Look every position of the text up and compare at most ``limit`` proposed tokens with it."""
        context = self._known(self._looked_up, lengths)
        proposed = np.minimum(np.append(lengths, np.int8(0))[context], limit).astype(np.int8)  # context -1: none
        accepted = np.zeros(len(proposed), dtype=np.int8)
        going: Ints = np.flatnonzero(proposed)
        for depth, row in enumerate(proposals.tokens):
            going = going[(proposed[going] > depth) & (going + depth < self.ends[going])]
            going = going[row[context[going]] == self._text[going + depth]]
            accepted[going] += 1
        return Drafts(proposed, accepted)

    def _known(self, contexts: Ids, lengths: NDArray[np.int8]) -> Ids:
        """Back off to the longest suffix with an entry; -1 where there is none."""
        has_entry = np.zeros(len(self._parents) + 1, dtype=bool)
        has_entry[: len(lengths)] = lengths > 0
        has_entry[-1] = True  # context -1: nothing is shorter
        known = contexts.copy()
        missing: Ints = np.flatnonzero(~has_entry[known])
        while len(missing):
            known[missing] = self._parents[known[missing]]
            missing = missing[~has_entry[known[missing]]]
        return known

    def _whole(self, contexts: Ids, tails: Ids, counts: Ints) -> Proposals:
        """The continuation with the highest count; of equals the shortest, then the smallest ids."""
        groups = _first_of_run(contexts)
        best, totals = np.maximum.reduceat(counts, groups), np.add.reduceat(counts, groups)
        lengths = np.where(counts == best[contexts], self._tail_lengths[tails], self._longest + 1)
        shortest = np.flatnonzero(lengths == np.minimum.reduceat(lengths, groups)[contexts])
        chosen = tails[shortest[_first_of_run(contexts[shortest])]]
        inside = np.arange(self._longest)[:, None] < self._tail_lengths[chosen]
        return Proposals(self._tails[:, chosen], np.where(inside, best / totals, -1.0), totals)

    def _path(self, contexts: Ids, tails: Ids, counts: Ints) -> Proposals:
        """The most probable next token, one after the other; of equals the smallest id."""
        totals = np.add.reduceat(counts, _first_of_run(contexts))
        tokens = np.full((self._longest, len(totals)), -1, dtype=np.int32)
        probabilities = np.full(tokens.shape, -1.0)
        for depth in range(self._longest):
            long = self._tail_lengths[tails] > depth
            if not long.any():
                break
            contexts, tails, counts = contexts[long], tails[long], counts[long]
            token = self._tails[depth][tails]
            # Tails are in the order of their tokens: those of one context that begin alike stand together.
            alike = _first_of_run(contexts, token)
            mass, owners = np.add.reduceat(counts, alike), contexts[alike]
            groups = _first_of_run(owners)
            best = np.repeat(np.maximum.reduceat(mass, groups), np.diff(groups, append=len(owners)))
            likeliest = np.flatnonzero(mass == best)
            chosen = likeliest[_first_of_run(owners[likeliest])]
            owner = owners[chosen]
            tokens[depth, owner] = token[alike[chosen]]
            probabilities[depth, owner] = mass[chosen] / totals[owner]
            on_path = np.zeros(len(alike), dtype=bool)
            on_path[chosen] = True
            kept = np.repeat(on_path, np.diff(alike, append=len(contexts)))
            contexts, tails, counts = contexts[kept], tails[kept], counts[kept]
        return Proposals(tokens, probabilities, totals)


def _flat(sequences: Sequence[Sequence[int]], specials: Collection[int] = ()) -> tuple[Ids, Ints, Ids]:
    """Join sequences: tokens, where the sequence of each begins, and its number; cut before special tokens."""
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    tokens = np.fromiter(chain.from_iterable(sequences), dtype=np.int32, count=int(lengths.sum()))
    numbers = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    if specials:
        bad = np.isin(tokens, np.fromiter(specials, dtype=np.int32))
        seen = np.cumsum(bad)
        before = np.repeat(np.concatenate([[0], seen])[np.cumsum(lengths) - lengths], lengths)
        tokens, numbers = tokens[seen == before], numbers[seen == before]
    first = _first_of_run(numbers)
    return tokens, np.repeat(first, np.diff(first, append=len(tokens))), numbers


def _ends(starts: Ints) -> Ints:
    """Where the sequence of each token ends, from where it begins."""
    first = _first_of_run(starts)
    return np.repeat(np.append(first, len(starts))[1:], np.diff(first, append=len(starts)))


def _contexts(tokens: Ids, starts: Ints, places: Ints, splits: int, longest: int) -> tuple[Ids, Ids, Ids]:
    """Number the contexts before ``places``, of which the first ``splits`` make entries and the others are looked up.

    A tree of reversed contexts, as in the dictionary format: one level for each token further back.

    Returns:
        For each context the longest suffix that is a context too, or -1. The context of each split. For each look-up
        the longest suffix of its history that is a context, or -1.
    """
    node = np.zeros(len(places), dtype=np.int64)  # 0: the empty context
    parents = [np.array([-1], dtype=np.int64)]
    width, nodes = int(tokens.max(initial=0)) + 1, 1
    going = np.arange(len(places))
    for depth in range(1, longest + 1):
        going = going[places[going] - starts[places[going]] >= depth]
        numbers, keys = _numbered(node[going] * width + tokens[places[going] - depth])
        parents.append(keys // width)
        node[going] = nodes + numbers
        nodes += len(keys)
    contexts, ends = _numbered(node[:splits])
    # Of the nodes only those that end a context count: each other one gets the nearest of them above it.
    nearest = np.full(nodes, -1, dtype=np.int32)
    nearest[ends] = np.arange(len(ends), dtype=np.int32)
    first = 1
    for above in parents[1:]:
        here = nearest[first : first + len(above)]
        here[:] = np.where(here >= 0, here, nearest[above])
        first += len(above)
    return nearest[np.concatenate(parents)[ends]], contexts.astype(np.int32), nearest[node[splits:]]


def _continuations(tokens: Ids, ends: Ints, longest: int) -> tuple[Ids, Ids, Ids]:
    """Number the continuations that begin at each token, in the order of their tokens.

    Returns:
        Number of the continuation at each token; tokens of each continuation, ``[longest, continuations]``,
        -1 behind its end; and its length.
    """
    ranks, keys = _numbered(tokens.astype(np.int64), by_size=True)
    positions, reach = np.arange(len(tokens)), 1
    while reach < longest:
        # Ranks by `reach` tokens, of two places no farther apart than that, give ranks by the tokens of both.
        step = min(reach, longest - reach)
        inside = positions + step < ends
        following = np.where(inside, ranks[np.minimum(positions + step, len(tokens) - 1)] + 1, 0)  # 0: behind the end
        ranks, keys = _numbered(ranks * (len(keys) + 1) + following, by_size=True)
        reach += step
    example = np.zeros(len(keys), dtype=np.int64)
    example[ranks] = positions
    lengths = np.minimum(ends[example] - example, longest).astype(np.int32)
    tails = np.full((longest, len(keys)), -1, dtype=np.int32)
    for depth in range(longest):
        long = lengths > depth
        tails[depth, long] = tokens[example[long] + depth]
    return ranks.astype(np.int32), tails, lengths


def _numbered(keys: Ints, by_size: bool = False) -> tuple[Ints, Ints]:
    """Number equal keys alike, as they first appear or by size; return the numbers and the key of each."""
    encoded = pa.array(keys).dictionary_encode()  # hashes, where np.unique would sort all keys
    numbers, values = encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_numpy()
    if not by_size:
        return numbers, values
    order = np.argsort(values)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return ranks[numbers], values[order]


def _first_of_run(*columns: NDArray[np.generic]) -> Ints:
    """Return where rows differ from the row before."""
    differs = np.arange(len(columns[0])) == 0
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)
