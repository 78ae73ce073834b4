"""What a draft model may say next, as a lattice of target tokens: a distribution that is known, and drawn from.

    the draft says        Qui .5   Quick .3   The .2
    in target ids         Qu i     Quick      The
    stated, drawn from    Qu .5    Quick .3   The .2           drawn: Qu
    left                     i .5
    the draft goes on        Qui te .4   Qui et .1
    in target ids            ite         i et
    stated, drawn from       ite .8      i .2

A draft token is a *leaf* when at most one target id of it is left to be drawn. That one is held back, because it may
merge with what comes next: the draft is asked for that, and both are spelled together.

Only target ids are drawn. What is stated for the next one follows from those drawn so far and from nothing else, so
what is left of several draft tokens is stated together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectool.lab.drawing.token_rows import END, UNKNOWN

_Ids = NDArray[np.int32]
_Floats = NDArray[np.float64]


class Leaf(NamedTuple):
    """A draft token of which everything is drawn, except perhaps for its last target id."""

    path: tuple[int, ...]  # draft ids up to it, from where the lattice begins
    pending: bytes  # bytes of a character that it has begun
    weight: float  # its probability, up to a factor that all weights have
    held: int | None = None  # its last target id, which may merge with what follows


@dataclass(slots=True)
class _Branch:
    """Draft tokens that may stand at one position, as far as they agree with what is drawn."""

    path: tuple[int, ...]  # draft ids before them
    tokens: _Ids  # the draft tokens [tokens]
    rows: _Ids  # target ids that are still to be drawn (`token_rows`), [tokens, columns]
    pending: Mapping[int, bytes]  # by draft token, bytes after its row
    weights: _Floats  # of each [tokens]


class Lattice:
    """Weighted continuations of the committed text, in target ids."""

    def __init__(self) -> None:
        self._branches: list[_Branch] = []

    def add(
        self, path: tuple[int, ...], tokens: _Ids, spelled: tuple[_Ids, Mapping[int, bytes]], weights: _Floats
    ) -> None:
        """Add draft ids [tokens] that may follow ``path``, with their rows, what is pending by index, and weights."""
        if not tokens.size:  # no draft token begins with what is pending
            return
        rows, pending = spelled
        by_token = {int(tokens[i]): data for i, data in pending.items()}
        self._branches.append(_Branch(path, tokens, rows, by_token, weights))

    def pop_heaviest_leaf(self, least: float, but_for: Callable[[int], bool] | None = None) -> Leaf | None:
        """Take out the heaviest leaf; None if its share of all weight is below ``least``.

        If the heaviest has a last id, or `END`, of which ``but_for`` is true, it stays where it is.
        """
        total, best = 0.0, (0.0, 0, 0)
        for number, branch in enumerate(self._branches):
            held = (branch.rows[:, 0] >= 0) & (branch.rows[:, 1:2] == END).any(axis=1)
            leaves = (branch.rows[:, 0] == END) | held
            weights = np.where(leaves, branch.weights, 0)
            i = int(weights.argmax())
            total += float(branch.weights[branch.rows[:, 0] != UNKNOWN].sum())
            best = max(best, (float(weights[i]), number, i))
        weight, number, i = best
        if weight <= 0 or weight < least * total:
            return None
        branch = self._branches[number]
        token, left = int(branch.tokens[i]), int(branch.rows[i, 0])
        if but_for is not None and but_for(left):
            return None
        branch.rows[i, 0] = UNKNOWN
        return Leaf((*branch.path, token), branch.pending.get(token, b""), weight, None if left == END else left)

    def next(self, vocabulary: int) -> tuple[_Ids, _Floats]:
        """The next target ids below ``vocabulary``, ascending [n], and their probabilities [n]; n may be 0."""
        first = np.concatenate([np.zeros(0, np.int32), *(branch.rows[:, 0] for branch in self._branches)])
        weights = np.concatenate([np.zeros(0), *(branch.weights for branch in self._branches)])
        ready = (first >= 0) & (first < vocabulary) & (weights > 0)
        ids, place = np.unique(first[ready], return_inverse=True)
        summed = np.bincount(place, weights[ready])
        return ids, summed / (summed.sum() or 1)

    def follow(self, token: int) -> None:
        """Keep what goes on with the target id ``token``, and go on after it."""
        for branch in self._branches:
            kept = branch.rows[:, 0] == token
            branch.tokens, branch.weights = branch.tokens[kept], branch.weights[kept]
            branch.rows = branch.rows[kept, 1:]
        self._branches = [branch for branch in self._branches if branch.tokens.size]
