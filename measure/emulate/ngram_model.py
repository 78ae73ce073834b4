"""An n-gram model over tokens, counted in a minute.

Interpolated absolute discounting, orders 1 to N, within documents. With count c(h y) of token y
after context h, N(h) of h before any token, and D = n1 / (n1 + 2 n2) of each order, n1 and n2 being
how many n-grams with a kept context occur once and twice::

    p(y | h) = max(c(h y) - D, 0) / N(h) + left(h) * p(y | h without its first token)

where left(h) is what the kept n-grams leave over, so that the probabilities of all ids sum to
one; below the unigrams lies the uniform distribution. Source: Ney, Essen, Kneser (1994); Chen and
Goodman (1999).

The n-grams form a trie in flat arrays. Node i of order k is one k-gram; the (k+1)-grams that
begin with it are consecutive nodes of order k + 1, by token. A context is its node, so that
nothing is hashed and nothing collides; a look-up is a binary search among the children. Each
node holds p(last token | the others), smoothing included, so that the tokens after a context come
best first from a merge of at most N sorted lists.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

_Ids = NDArray[np.int32]
_PIECE = 1 << 20  # tokens
# One node of each length 0 .. order-1: the suffixes of a context; -1 where the model lacks it.
Context = list[int]


@dataclass(frozen=True, eq=False)
class _Level:
    """All n-grams of one order.

    Attributes:
        tokens: Last token of each, ascending among those with the same context. int32 [n-grams].
        probabilities: p(last token | the others). float32 [n-grams].
        best: Nodes of each context, the most probable first, ties by token. int32 [n-grams].
        children: Node i's continuations are nodes ``children[i]`` to ``children[i + 1]`` of the
            next order. int32 [n-grams + 1].
        left: Probability that the continuations leave to the shorter context. float32 [n-grams].
    """

    tokens: _Ids
    probabilities: NDArray[np.float32]
    best: _Ids
    children: _Ids
    left: NDArray[np.float32]

    # Memory views read single numbers a few times as fast as arrays do.
    @cached_property
    def views(self) -> tuple[memoryview, memoryview, memoryview, memoryview, memoryview]:
        """The five arrays, for reading single numbers."""
        return self.tokens.data, self.probabilities.data, self.best.data, self.children.data, self.left.data


class NgramModel:
    """Probabilities of the next token after at most ``order - 1`` tokens of context.

    Attributes:
        size: Number of token ids.
        order: The longest n-gram.
    """

    def __init__(self, levels: Sequence[_Level], size: int) -> None:
        """Wrap what `count` has counted."""
        self.size = size
        self.order = len(levels)
        self._levels = tuple(levels)
        self._views = tuple(level.views for level in levels)

    @classmethod
    def count(cls, documents: Iterable[Sequence[int]], size: int, order: int = 5, min_count: int = 2) -> "NgramModel":
        """Count the n-grams of tokenized documents; none crosses a document's end.

        Takes about 50 bytes of memory for each token of text while it runs.

        Args:
            documents: Token ids of each document.
            size: Number of token ids.
            order: The longest n-gram, in tokens (>= 1).
            min_count: N-grams of three tokens or more that occur less often are left out; their
                probability goes to the shorter context.

        Raises:
            ValueError: An id is not in ``range(size)``, there is no token at all, or ``order`` or
                ``min_count`` is below 1.
        """
        if order < 1 or min_count < 1:
            raise ValueError(f"order and min_count: expected 1 or more, got {order} and {min_count}.")
        tokens, ages = _join(documents, order)
        if not tokens.size:
            raise ValueError("documents: expected tokens to count, got none.")
        if tokens.min() < 0 or tokens.max() >= size:
            raise ValueError(f"documents: expected ids of 0 to {size - 1}, got {tokens.min()} to {tokens.max()}.")
        counts = np.bincount(tokens, minlength=size)
        discount = _discount(counts)
        uniform = discount * np.count_nonzero(counts) / len(tokens) / size
        probabilities = np.maximum(counts - discount, 0) / len(tokens) + uniform
        nodes = tokens  # node of the n-gram that ends at each position; -1 where it is not kept
        last = np.arange(size, dtype=np.int32)
        contexts = np.zeros(size, dtype=np.int64)
        levels = []
        for length in range(2, order + 1):
            best = _best_first(contexts, probabilities)
            nodes, grams = _extend(tokens, ages, nodes, length, min_count if length > 2 else 1)
            children = np.concatenate([[0], np.cumsum(np.bincount(grams.contexts, minlength=len(last)))])
            own = (grams.counts - grams.discount) / grams.totals[grams.contexts]
            left = 1 - np.bincount(grams.contexts, own, minlength=len(last))
            levels.append(
                _Level(last, probabilities.astype(np.float32), best, children.astype(np.int32), left.astype(np.float32))
            )
            probabilities = own + left[grams.contexts] * probabilities[grams.shorter]
            last, contexts = grams.tokens, grams.contexts
        best = _best_first(contexts, probabilities)
        nothing, all_left = np.zeros(len(last) + 1, dtype=np.int32), np.ones(len(last), dtype=np.float32)
        levels.append(_Level(last, probabilities.astype(np.float32), best, nothing, all_left))
        return cls(levels, size)

    @property
    def ngrams(self) -> list[int]:
        """Number of n-grams of each order, 1 first."""
        return [len(level.tokens) for level in self._levels]

    @property
    def memory(self) -> int:
        """Bytes of its arrays."""
        arrays = ("tokens", "probabilities", "best", "children", "left")
        return sum(getattr(level, name).nbytes for level in self._levels for name in arrays)

    def context(self, ids: Sequence[int]) -> Context:
        """Return the context after ``ids``; the last ``order - 1`` of them matter."""
        found: Context = [0] + [-1] * (self.order - 1)
        for token in ids[max(0, len(ids) - self.order + 1) :]:
            found = self.advance(found, token)
        return found

    def advance(self, context: Context, token: int) -> Context:
        """Return the context that ``token`` makes of ``context``."""
        after: Context = [0] + [-1] * (self.order - 1)
        if self.order > 1 and 0 <= token < self.size:
            after[1] = token
            for length in range(2, self.order):
                node = context[length - 1]
                if node < 0:
                    break
                after[length] = self._child(length - 1, node, token)
        return after

    def probability(self, context: Context, token: int) -> float:
        """Return p(token | context)."""
        share = 1.0
        for length in range(self.order - 1, 0, -1):
            node = context[length]
            if node >= 0:
                child = self._child(length, node, token)
                if child >= 0:
                    return share * float(self._views[length][1][child])
                share *= self._views[length - 1][4][node]
        return share * float(self._views[0][1][token])

    def probabilities(self, context: Context, tokens: _Ids) -> NDArray[np.float64]:
        """Return p(token | context) of distinct tokens; float64 [tokens]."""
        scores = self._levels[0].probabilities[tokens].astype(np.float64)
        order: NDArray[np.intp] | None = None
        for length in range(1, self.order):
            node = context[length]
            if node < 0:
                continue
            level, following = self._levels[length - 1], self._levels[length]
            first, end = int(level.children[node]), int(level.children[node + 1])
            if first == end:
                continue
            scores *= level.left[node]
            known = following.tokens[first:end]
            # Search for the fewer among the more.
            if len(tokens) <= len(known):
                places = np.minimum(np.searchsorted(known, tokens), len(known) - 1)
                hits = np.flatnonzero(known[places] == tokens)
                scores[hits] = following.probabilities[first + places[hits]]
            else:
                order = np.argsort(tokens, kind="stable") if order is None else order
                places = order[np.minimum(np.searchsorted(tokens, known, sorter=order), len(tokens) - 1)]
                hits = np.flatnonzero(tokens[places] == known)
                scores[places[hits]] = following.probabilities[first + hits]
        return scores

    def candidates(self, context: Context) -> Iterator[tuple[int, float]]:
        """Yield every id with p(id | context), the most probable first."""
        views = self._views
        # Of every context looked at: the score of its next token, and where that token is.
        heads: list[float] = []
        lists: list[tuple[memoryview, memoryview, memoryview]] = []
        places: list[int] = []
        ends: list[int] = []
        shares: list[float] = []
        seen: set[int] = set()
        length, share = self.order, 1.0
        while True:
            # A token comes first from the longest context that knows it: there it is as probable
            # as in the lists of the shorter ones or more so.
            score = max(heads, default=0.0)
            while share > score and length > 0:
                length -= 1
                node = context[length]
                if node < 0:
                    continue
                place, end, after = 0, self.size, 0.0
                if length > 0:
                    _, _, _, children, left = views[length - 1]
                    place, end, after = children[node], children[node + 1], share * left[node]
                    if place == end:
                        continue
                tokens, probabilities, best, _, _ = views[length]
                heads.append(share * probabilities[best[place]])
                lists.append((tokens, probabilities, best))
                places.append(place)
                ends.append(end)
                shares.append(share)
                share = after
                score = max(heads)
            if score < 0:
                return
            which = heads.index(score)
            tokens, probabilities, best = lists[which]
            place = places[which]
            token = tokens[best[place]]
            places[which] = place = place + 1
            heads[which] = shares[which] * probabilities[best[place]] if place < ends[which] else -1.0
            if token not in seen:
                seen.add(token)
                yield token, score

    def _child(self, length: int, node: int, token: int) -> int:
        """Return the node of an n-gram of ``length`` tokens and one more ``token``; -1 for none."""
        tokens, children = self._views[length][0], self._views[length - 1][3]
        end = children[node + 1]
        place = bisect_left(tokens, token, children[node], end)
        return place if place < end and tokens[place] == token else -1


@dataclass(frozen=True, slots=True)
class _Grams:
    """The kept n-grams of one order, by context and token: [n-grams] except ``totals``.

    Attributes:
        tokens: Last tokens. int32.
        contexts: Nodes of all tokens but the last. int64.
        counts: Occurrences. int64.
        shorter: Nodes of all tokens but the first. int32.
        totals: Occurrences of every context before any token. int64 [contexts].
        discount: What is taken off every count.
    """

    tokens: _Ids
    contexts: NDArray[np.int64]
    counts: NDArray[np.int64]
    shorter: _Ids
    totals: NDArray[np.int64]
    discount: float


def _join(documents: Iterable[Sequence[int]], order: int) -> tuple[_Ids, NDArray[np.uint8]]:
    """Return all tokens, int32 [tokens], and each one's place in its document, at most 255, uint8 [tokens]."""
    pieces: list[_Ids] = []
    lengths: list[int] = []
    pending: list[int] = []
    for document in documents:
        pending.extend(document)
        lengths.append(len(document))
        if len(pending) >= _PIECE:
            pieces.append(np.array(pending, dtype=np.int32))
            pending = []
    pieces.append(np.array(pending, dtype=np.int32))
    tokens = np.concatenate(pieces)
    starts = np.zeros(len(tokens), dtype=bool)
    starts[np.cumsum([0, *lengths])[:-1][np.array(lengths, dtype=np.int64) > 0]] = True
    ages = np.full(len(tokens), min(order, 255), dtype=np.uint8)
    for age in range(min(order, 255) - 1, -1, -1):
        ages[age:][starts[: max(0, len(starts) - age)]] = age
    return tokens, ages


def _extend(tokens: _Ids, ages: NDArray[np.uint8], nodes: _Ids, length: int, min_count: int) -> tuple[_Ids, _Grams]:
    """Count the n-grams of ``length`` tokens whose context is kept.

    Args:
        tokens: The text. int32 [tokens].
        ages: Place of each token in its document. uint8 [tokens].
        nodes: Node of the shorter n-gram that ends at each position, -1 for none. int32 [tokens].
        length: Tokens of an n-gram.
        min_count: Occurrences of a kept one.

    Returns:
        ``nodes`` of these n-grams, and the n-grams.
    """
    places = (np.flatnonzero((nodes[:-1] >= 0) & (ages[1:] >= length - 1)) + 1).astype(np.int32)
    keys = nodes[places - 1].astype(np.int64) << 32 | tokens[places]
    totals = np.bincount(nodes[places - 1])
    order = np.argsort(keys)
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.zeros(0, np.int64)
    counts = np.diff(starts, append=len(keys))
    discount = _discount(counts)
    kept = counts >= min_count
    numbers = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
    after = np.full(len(tokens), -1, dtype=np.int32)
    after[places[order]] = np.repeat(numbers, counts)
    first = starts[kept]
    found = keys[first]
    grams = _Grams(
        (found & 0xFFFFFFFF).astype(np.int32),
        found >> 32,
        counts[kept],
        nodes[places[order[first]]],
        totals,
        discount,
    )
    return after, grams


def _discount(counts: NDArray[np.int64]) -> float:
    """Return n1 / (n1 + 2 n2), kept off 0 and 1, which tiny texts would give."""
    once, twice = int(np.sum(counts == 1)), int(np.sum(counts == 2))
    return min(0.95, max(0.05, once / max(1, once + 2 * twice)))


def _best_first(contexts: NDArray[np.int64], probabilities: NDArray[np.float64]) -> _Ids:
    """Return the nodes ordered by context, then falling probability, then number; int32 [nodes].

    Args:
        contexts: Context of every node, ascending.
        probabilities: Of every node.
    """
    # As stored, so that a merge of lists never sees two nodes out of order.
    return np.lexsort((-probabilities.astype(np.float32), contexts)).astype(np.int32)
