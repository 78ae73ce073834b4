"""What a draft model may say next, spelled in target ids: a distribution that is known, and drawn from.

    the draft says        Qui .5   Quick .3   The .2
    in target ids         Qu i     Quick      The
    stated, drawn from    Qu .5    Quick .3   The .2           drawn: Qu
    left                     i .5
    the draft goes on        Qui te .4   Qui et .1
    in target ids            ite         i et
    stated, drawn from       ite .8      i .2

A draft token is *over* where one target id of it is left. That one is held back, since it may merge with what comes
next. The draft is asked for that, and both are spelled together.

Only target ids are drawn. What is stated for the next one follows from those drawn so far and from nothing else. So
what is left of several draft tokens is stated together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from spectool.runtime.translation.spelling import CUT, OVER

_Ids = NDArray[np.int32]
_Floats = NDArray[np.float64]


class Scorer(Protocol):
    """A draft model that is asked what follows the context and some more ids, a *path*.

    Where there is healing, paths begin before the last id of the context, else after it.
    """

    def begin(self, ids: Sequence[int], kept: int, healing: bool) -> tuple[int, ...] | None:
        """Read the context (`DraftContext`); return the path to its end: one id where there is healing.

        None where there is nothing to go on from.
        """

    def best(self, path: tuple[int, ...], among: _Ids | None = None) -> tuple[_Ids, _Floats]:
        """Return the most probable of all draft ids, or of ``among``, and their logits up to a constant."""

    def score(self, path: tuple[int, ...], token: int) -> float:
        """Return the logit of one id, up to the same constant."""


class Over(NamedTuple):
    """A draft token of which everything is drawn, but perhaps for its last target id."""

    path: tuple[int, ...]  # draft ids up to it, from where the outlook begins
    carried: bytes  # bytes of a character that it has begun
    weight: float  # its probability, up to a factor that all weights have
    held: int | None = None  # the last target id of its spelling, which may merge with what follows


@dataclass(slots=True)
class _Branch:
    """Draft tokens that may stand at one place, as far as they agree with what is drawn."""

    path: tuple[int, ...]  # draft ids before them
    tokens: _Ids  # the draft tokens [tokens]
    rows: _Ids  # target ids that are still to be drawn (`translation.spelling`), [tokens, columns]
    carried: Mapping[int, bytes]  # by draft token, bytes behind its row
    weights: _Floats  # of each [tokens]


class Outlook:
    """Weighted continuations of the committed text, in target ids."""

    def __init__(self) -> None:
        """Begin with none."""
        self._branches: list[_Branch] = []

    def add(
        self, path: tuple[int, ...], tokens: _Ids, spelled: tuple[_Ids, Mapping[int, bytes]], weights: _Floats
    ) -> None:
        """Add what the draft may say after ``path``.

        Args:
            path: Draft ids.
            tokens: Draft ids that may follow [tokens].
            spelled: Their rows [tokens, columns], and by place the bytes that are carried behind.
            weights: Of each [tokens].
        """
        if not tokens.size:  # no draft token begins with what is pending
            return
        rows, carried = spelled
        named = {int(tokens[place]): data for place, data in carried.items()}
        self._branches.append(_Branch(path, tokens, rows, named, weights))

    def take_over(self, least: float, hold: bool) -> Over | None:
        """Take out the heaviest token that is over; None if its share of all weight is below ``least``.

        With ``hold``, one that has a single target id left is taken out as well: what follows may change it.
        """
        total, best = 0.0, (0.0, 0, 0)
        for number, branch in enumerate(self._branches):
            over = branch.rows[:, 0] == OVER
            if hold:
                over |= (branch.rows[:, 0] >= 0) & (branch.rows[:, 1:2] == OVER).any(axis=1)
            weights = np.where(over, branch.weights, 0)
            place = int(weights.argmax())
            total += float(branch.weights[branch.rows[:, 0] != CUT].sum())
            best = max(best, (float(weights[place]), number, place))
        weight, number, place = best
        if weight <= 0 or weight < least * total:
            return None
        branch = self._branches[number]
        token, left = int(branch.tokens[place]), int(branch.rows[place, 0])
        branch.rows[place, 0] = CUT
        return Over((*branch.path, token), branch.carried.get(token, b""), weight, None if left == OVER else left)

    def next(self, vocabulary: int) -> tuple[_Ids, _Floats]:
        """Return the next target ids below ``vocabulary``, ascending [n], and their probabilities [n]; n may be 0."""
        first = np.concatenate([np.zeros(0, np.int32), *(branch.rows[:, 0] for branch in self._branches)])
        weights = np.concatenate([np.zeros(0), *(branch.weights for branch in self._branches)])
        ready = (first >= 0) & (first < vocabulary) & (weights > 0)
        ids, place = np.unique(first[ready], return_inverse=True)
        summed = np.bincount(place, weights[ready])
        return ids, summed / (summed.sum() or 1)

    def follow(self, token: int) -> None:
        """Keep what goes on with the target id ``token``, from behind it on."""
        for branch in self._branches:
            kept = branch.rows[:, 0] == token
            branch.tokens, branch.weights = branch.tokens[kept], branch.weights[kept]
            branch.rows = branch.rows[kept, 1:]
        self._branches = [branch for branch in self._branches if branch.tokens.size]
