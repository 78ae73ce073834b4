"""Drafts drawn in target ids from a draft model with another tokenizer, each with what it was drawn from.

The design and the proof that nothing is lost: docs/lab/drawing.md.
"""

from collections.abc import Sequence
from typing import cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spectool.lab.drawing.lattice import Lattice, Leaf
from spectool.lab.drawing.scorer import Scorer
from spectool.lab.drawing.token_rows import CHECKED, END, TokenRows
from spectool.runtime.drafters.translated import FURTHER
from spectool.runtime.sampling.samplers import Sampling, processed
from spectool.runtime.sampling.verification import Draw
from spectool.runtime.translation.byte_aligned import FirstTokenRule

SMALL = 0.5  # share of the lattice that is not worth a pass of the draft
_LEAST = -1e30
_Ids = NDArray[np.int32]
_Floats = NDArray[np.float64]


class NextTokens:
    """The distribution of one target token after the other, each given those before it.

    Attributes:
        likelihood: Product of the probabilities of the most probable draft tokens at all positions looked at.
    """

    def __init__(
        self,
        scorer: Scorer,
        rows: TokenRows,
        context: Sequence[int],
        constraint: FirstTokenRule,
        draw: Draw,
        history: Sequence[int],
        passes: int,
        min_probability: float = 0.0,
    ) -> None:
        """Look ahead from a frontier.

        Args:
            scorer: The draft model.
            rows: What draft tokens say at the frontier.
            context: The committed text in draft ids.
            constraint: What a first draft token may be.
            draw: The request's sampling and processors, and the target's vocabulary.
            history: The committed text in target ids; read where there are processors.
            passes: Maximum number of draft positions to look at: forward passes of a model. `FURTHER` ones may settle
                the last target id.
            min_probability: End these passes once the most probable draft tokens are all right with less than this,
                0..1, because the target accepts what is drawn more often where the draft is surer of one token.
        """
        self._scorer, self._rows, self._draw, self._passes = scorer, rows, draw, passes
        self._further = FURTHER
        self.likelihood, self._least = 1.0, min_probability
        self._history = history
        self._temperature = draw.sampling.temp
        self._first_ids = constraint.first
        self._drawn: list[int] = []
        self._lattice = Lattice()
        self._begin = scorer.begin(context, constraint.extensions.size > 0)
        own = 1.0  # weight of the last context token; the others are healed tokens
        if self._begin:
            ids, scores = scorer.best((), constraint.extensions)
            score = scorer.score((), self._begin[0])
            best = max(score, scores.max(initial=score), _LEAST)  # some score, where none is finite
            weights = np.exp((scores - best) / self._temperature)
            own = float(np.exp((score - best) / self._temperature)) or float(not weights.any())
            likely = weights >= CHECKED * (own + weights.sum())
            self._lattice.add((), ids, rows.first(ids, likely, True), weights)
        self._leaf = None if self._begin is None or not own > 0 else Leaf(self._begin, b"", own)

    def stated(self) -> tuple[_Ids, _Floats] | None:
        """Target ids [n] and their probabilities [n], which sum to 1; None where the draft cannot say."""
        while self._leaf is not None:
            self._expand(self._leaf)
            self._leaf = self._next_leaf()
        ids, probabilities = self._lattice.next(self._draw.vocabulary)
        if self._draw.processors and ids.size:
            probabilities = self._processed(ids, probabilities)
        kept = probabilities > 0
        return _restricted(self._draw.sampling, ids[kept], probabilities[kept]) if kept.any() else None

    def follow(self, token: int) -> None:
        """Go on after a token, one of those that were stated."""
        self._drawn.append(token)
        self._lattice.follow(token)
        self._leaf = self._next_leaf()

    def _next_leaf(self) -> Leaf | None:
        """What the draft is asked about next; once it has used its passes, only what is not settled."""
        if self._passes + self._further <= 0:
            return None
        return self._lattice.pop_heaviest_leaf(SMALL, None if self._passes > 0 else self._is_settled)

    def _is_settled(self, last: int) -> bool:
        """Whether a leaf with the last target id ``last``, or `END`, can be left as it is."""
        return bool(self._drawn) if last == END else self._rows.is_settled([*self._drawn, last])

    def _expand(self, leaf: Leaf) -> None:
        """Ask the draft what comes after ``leaf``."""
        if self._passes > 0:
            self._passes -= 1
        else:
            self._further -= 1
        first = not self._drawn and leaf.path == self._begin
        ids, scores = self._scorer.best(leaf.path)
        best = scores.max()
        self.likelihood /= float(np.exp(scores - best).sum())
        if self.likelihood < self._least:
            self._passes = 0
        mass = np.exp((scores - best) / self._temperature).sum()
        if first and self._first_ids is not None:
            ids, scores = self._scorer.best(leaf.path, self._first_ids)
        weights = np.exp((scores - best) / self._temperature) / mass
        likely = weights >= CHECKED
        if first:
            spelled = self._rows.first(ids, likely, False)
        else:
            spelled = self._rows.following(ids, likely, self._drawn, leaf.pending, leaf.held)
        self._lattice.add(leaf.path, ids, spelled, leaf.weight * weights)

    def _processed(self, ids: _Ids, probabilities: _Floats) -> _Floats:
        """The probabilities as the request's processors change them; zeros where one refuses the text."""
        scores = mx.array((self._temperature * np.log(probabilities)).astype(np.float32))
        logits = mx.full((1, self._draw.vocabulary), -mx.inf)
        logits[0, mx.array(ids)] = scores
        seen = mx.array([*self._history, *self._drawn])
        try:
            logits = processed(logits, self._draw.processors, seen)
        except Exception:  # the target will ask about it, if it gets there
            return np.zeros_like(probabilities)
        weights: _Floats = np.exp(np.array(logits[0, mx.array(ids)], np.float64) / self._temperature)
        return weights * (1 / (float(weights.sum()) or 1))


def draw_tokens(following: NextTokens, limit: int, vocabulary: int) -> tuple[list[int], mx.array | None]:
    """At most ``limit`` target tokens and what each was drawn from, float32 [drawn, vocabulary]; None for none."""
    tokens: list[int] = []
    stated: list[tuple[_Ids, _Floats]] = []
    coins = mx.random.uniform(shape=(limit,))
    mx.async_eval(coins)  # type: ignore[no-untyped-call]  # ready before the draft is
    tossed: list[float] = []
    for place in range(limit):
        known = following.stated()
        if known is None:
            break
        tossed = tossed or cast("list[float]", coins.tolist())
        sums = np.cumsum(known[1])
        tokens.append(int(known[0][np.searchsorted(sums, tossed[place] * sums[-1], side="right")]))
        stated.append(known)
        following.follow(tokens[-1])
    return tokens, _rows(stated, vocabulary) if stated else None


def _rows(stated: Sequence[tuple[_Ids, _Floats]], vocabulary: int) -> mx.array:
    """The distributions on the device, float32 [stated, vocabulary]; lazy."""
    row = np.repeat(np.arange(len(stated)), [len(ids) for ids, _ in stated])
    place = mx.array((vocabulary * row + np.concatenate([ids for ids, _ in stated])).astype(np.int32))
    values = mx.array(np.concatenate([probabilities for _, probabilities in stated]).astype(np.float32))
    return mx.zeros((len(stated) * vocabulary,)).at[place].add(values).reshape(len(stated), vocabulary)


def _restricted(sampling: Sampling, ids: _Ids, probabilities: _Floats) -> tuple[_Ids, _Floats]:
    """Those of a few ids [n] that the sampler's filters keep, the most probable first, and their share of that [n].

    These are the filters of `Sampling.probabilities` without XTC, in numpy, which for a few ids is faster.
    """
    order = np.argsort(-probabilities, kind="stable")
    ids, probabilities = ids[order], probabilities[order]
    kept = probabilities >= sampling.min_p * probabilities[0]
    if 0 < sampling.top_p < 1:
        kept &= np.cumsum(probabilities) - probabilities < sampling.top_p
    if sampling.top_k:
        kept[sampling.top_k :] = False
    return ids[kept], probabilities[kept] / probabilities[kept].sum()
