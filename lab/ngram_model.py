"""An n-gram model over tokens, which is counted in a minute, and drafts from it for any tokenizer.

Interpolated absolute discounting, orders 1 to N, within documents. Let c(h y) be the count of token y after context h,
and N(h) that of h before any token. Let D = n1 / (n1 + 2 n2) in each order, where n1 and n2 are the numbers of n-grams
with a kept context that occur once and twice. Then::

    p(y | h) = max(c(h y) - D, 0) / N(h) + left(h) * p(y | h without its first token)

where left(h) is what the kept n-grams leave, so that the probabilities of all ids sum to one. Below the unigrams
is the uniform distribution. Source: Ney, Essen, Kneser (1994); Chen and Goodman (1999).

The n-grams form a trie in flat arrays. Node i of order k is one k-gram; the (k+1)-grams that begin with it are
consecutive nodes of order k + 1, sorted by token. A context is its node, so a look-up is a binary search among the
children. Each node holds p(last token | the others), smoothing included.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from spectool.runtime.drafters.drafter import Drafting
from spectool.runtime.translation.byte_aligned import FirstTokenRule

_Ids = NDArray[np.int32]
_Floats = NDArray[np.float32]
# The node of each suffix of a context, of lengths 0 to order - 1; -1 where the model lacks it.
Context = list[int]
_MOST_ASKED = 256  # first tokens that a constraint may refuse


@dataclass(frozen=True, eq=False, slots=True)
class _Level:
    """All n-grams of one order, and what follows them in the next one."""

    tokens: _Ids  # last token of each, ascending among those with the same context. int32 [n-grams]
    probabilities: _Floats  # p(last token | the others). float32 [n-grams]
    # node i's continuations are nodes ``children[i]`` to ``children[i + 1]`` of the next order. int32 [n-grams + 1]
    children: _Ids
    left: _Floats  # probability that the continuations leave to the shorter context. float32 [n-grams]


class NgramModel:
    """Probabilities of the next token after at most ``order - 1`` tokens of context.

    Attributes:
        size: Number of token ids.
        order: The longest n-gram.
    """

    def __init__(self, levels: Sequence[_Level]) -> None:
        """Wrap what `count` counted."""
        self.size, self.order = len(levels[0].tokens), len(levels)
        self._levels = tuple(levels)

    @classmethod
    def count(cls, documents: Iterable[Sequence[int]], size: int, order: int = 5, min_count: int = 2) -> "NgramModel":
        """Count the n-grams of tokenized documents; none crosses the end of a document.

        Needs about 70 bytes of memory for each token of text.

        N-grams of three or more tokens that occur less often than ``min_count`` are left out, and their probability
        goes to the shorter context.

        Raises:
            ValueError: An id is not in ``range(size)``, there is no token at all, or ``order`` or ``min_count`` is
                below 1.
        """
        if order < 1 or min_count < 1:
            raise ValueError(f"order and min_count: expected 1 or more, got {order} and {min_count}.")
        texts = [np.asarray(ids, dtype=np.int32) for ids in documents]
        lengths = np.array([len(ids) for ids in texts], dtype=np.int64)
        if not lengths.sum():
            raise ValueError("documents: expected tokens to count, got none.")
        tokens = np.concatenate(texts)
        if tokens.min() < 0 or tokens.max() >= size:
            raise ValueError(f"documents: expected ids of 0 to {size - 1}, got {tokens.min()} to {tokens.max()}.")
        places = np.arange(len(tokens)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        counts = np.bincount(tokens, minlength=size)
        discount = _discount(counts)
        uniform = discount * np.count_nonzero(counts) / len(tokens) / size
        probabilities = np.maximum(counts - discount, 0) / len(tokens) + uniform
        nodes = tokens  # node of the n-gram that ends at each position; -1 where it is not kept
        last: _Ids = np.arange(size, dtype=np.int32)
        levels = []
        for length in range(2, order + 2):
            # Positions whose n-gram of this length has a kept context; n-grams are ordered by context and token.
            ends = np.flatnonzero((nodes[:-1] >= 0) & (places[1:] >= length - 1)) + 1 if length <= order else places[:0]
            pairs = nodes[ends - 1].astype(np.int64) << 32 | tokens[ends]
            found, numbers, counts = np.unique(pairs, return_inverse=True, return_counts=True)
            discount = _discount(counts)
            kept = counts >= (min_count if length > 2 else 1)
            example = np.zeros(len(found), dtype=np.int64)  # where each of them ends, once
            example[numbers] = ends
            contexts, following, shorter = found[kept] >> 32, tokens[example[kept]], nodes[example[kept]]
            totals = np.bincount(nodes[ends - 1], minlength=len(last))
            own = (counts[kept] - discount) / totals[contexts]
            left = 1 - np.bincount(contexts, own, minlength=len(last))
            children = np.concatenate([[0], np.cumsum(np.bincount(contexts, minlength=len(last)))])
            continued = own + left[contexts] * probabilities[shorter]
            levels.append(
                _Level(last, probabilities.astype(np.float32), children.astype(np.int32), left.astype(np.float32))
            )
            nodes = np.full(len(tokens), -1, dtype=np.int32)
            nodes[ends] = np.where(kept, np.cumsum(kept) - 1, -1)[numbers]
            last, probabilities = following, continued
        return cls(levels)

    @property
    def ngrams(self) -> list[int]:
        """Number of n-grams of each order, 1 first."""
        return [len(level.tokens) for level in self._levels]

    def context(self, ids: Sequence[int]) -> Context:
        """The context after ``ids``, of which the last ``order - 1`` matter."""
        found: Context = [0] + [-1] * (self.order - 1)
        for token in ids[max(0, len(ids) - self.order + 1) :]:
            found = self.advance(found, token)
        return found

    def advance(self, context: Context, token: int) -> Context:
        """The context after ``context`` and one more token."""
        after: Context = [0] + [-1] * (self.order - 1)
        if self.order > 1 and 0 <= token < self.size:
            after[1] = token
            for length in range(2, self.order):
                node = context[length - 1]
                if node < 0:
                    break
                children, following = self._levels[length - 2].children, self._levels[length - 1].tokens.data
                end = int(children[node + 1])
                place = bisect_left(following, token, int(children[node]), end)
                after[length] = place if place < end and following[place] == token else -1
        return after

    def probabilities(self, context: Context) -> _Floats:
        """The probability p(id | context) of every id, float32 [size]."""
        scores = self._levels[0].probabilities.copy()
        for length in range(1, self.order):
            node = context[length]
            level = self._levels[length - 1]
            following = slice(level.children[node], level.children[node + 1])
            if node >= 0 and following.start < following.stop:
                scores *= level.left[node]
                scores[self._levels[length].tokens[following]] = self._levels[length].probabilities[following]
        return scores


def _discount(counts: NDArray[np.int64]) -> float:
    """The discount n1 / (n1 + 2 n2), kept away from 0 and 1, which tiny texts would give."""
    once, twice = int(np.sum(counts == 1)), int(np.sum(counts == 2))
    return min(0.95, max(0.05, once / max(1, once + 2 * twice)))


class DraftSource:
    """What drafts in place of a `ModelSource`, for nothing."""

    costs_a_pass, cache, likely = False, None, ()

    def draft(self, context: Sequence[int], constraint: FirstTokenRule, limit: int) -> tuple[list[int], bool]:
        """As `ModelSource.drafting`, at once."""
        raise NotImplementedError

    def more(self) -> list[int]:
        """Nothing: what follows the draft costs the same in the next cycle."""
        return []

    def drafting(
        self, context: Sequence[int], constraint: FirstTokenRule, limit: int, unchanged: int = 0
    ) -> Drafting[tuple[list[int], bool]]:
        """As `ModelSource.drafting`, without passes."""
        return self.draft(context, constraint, limit)
        yield

    def going_on(self) -> Drafting[list[int]]:
        """As `ModelSource.going_on`, without passes."""
        return self.more()
        yield


class NgramSource(DraftSource):
    """Drafts greedily with an `NgramModel`; keeps nothing between calls."""

    def __init__(self, model: NgramModel, within: NDArray[np.bool_] | None = None) -> None:
        """Draft with a model over draft ids, only those of ``within``, bool [size]; None for all."""
        self._model, self._within = model, within

    def draft(self, context: Sequence[int], constraint: FirstTokenRule, limit: int) -> tuple[list[int], bool]:
        """As `ModelSource.draft`; gives up when the constraint has refused the first `_MOST_ASKED` candidates."""
        model, ids = self._model, context
        before = model.context(ids[max(0, len(ids) - model.order) : -1])
        present = model.advance(before, ids[-1]) if ids else before
        candidates = self._candidates(before, present, ids[-1] if ids else None, constraint) if limit > 0 else ()
        for token, healed in islice(candidates, _MOST_ASKED):
            if constraint.allows(token, healed):
                break
        else:
            return [], False
        drafts, now = [token], before if healed else present
        while len(drafts) < limit:
            now = model.advance(now, drafts[-1])
            scores = model.probabilities(now)
            drafts.append(int((scores if self._within is None else np.where(self._within, scores, -1)).argmax()))
        return drafts, healed

    def _candidates(
        self, before: Context, present: Context, last: int | None, constraint: FirstTokenRule
    ) -> Iterator[tuple[int, bool]]:
        """First tokens by falling score, and whether each is healed."""
        model, scale = self._model, 1.0
        plain = np.arange(model.size, dtype=np.int32) if constraint.first is None else constraint.first
        extensions = constraint.extensions[:0] if last is None else constraint.extensions
        healed = np.zeros(0, dtype=np.float32)
        if last is not None and extensions.size:
            previous = model.probabilities(before)
            healed, scale = previous[extensions], float(previous[last]) if 0 <= last < model.size else 0.0
        ids = np.concatenate([plain, extensions])
        scores = np.concatenate([scale * model.probabilities(present)[plain], healed])
        if self._within is not None:
            scores[~self._within[ids]] = -1
        for _ in range(len(scores)):
            place = int(scores.argmax())
            if scores[place] < 0:
                return
            yield int(ids[place]), place >= len(plain)
            scores[place] = -1
