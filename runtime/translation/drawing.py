"""Drafts drawn in target ids from a draft model with another tokenizer, each with what it was drawn from.

The design and the proof that nothing is lost: docs/sampling.md.
"""

from collections.abc import Sequence
from typing import cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spectool.runtime.decoding.sampling import Sampling, processed
from spectool.runtime.decoding.verification import Draw
from spectool.runtime.translation.outlook import Outlook, Over, Scorer
from spectool.runtime.translation.protocol import Constraint, DraftContext
from spectool.runtime.translation.spelling import CHECKED, Speller

FLATTER = 1.0  # temperature of the draft, in parts of the request's (docs/sampling.md has others)
SMALL = 0.5  # share of the outlook that is not worth a pass of the draft
_LEAST = -1e30
_Ids = NDArray[np.int32]
_Floats = NDArray[np.float64]


class NextTokens:
    """The distribution of one target token after the other, each given those before it."""

    def __init__(
        self,
        scorer: Scorer,
        speller: Speller,
        context: DraftContext,
        constraint: Constraint,
        draw: Draw,
        history: Sequence[int],
        passes: int,
    ) -> None:
        """Look ahead from a frontier.

        Args:
            scorer: The draft model.
            speller: Spells draft tokens at the frontier.
            context: The committed text in draft ids.
            constraint: What a first draft token may be.
            draw: The request's sampling and processors, and the target's vocabulary.
            history: The committed text in target ids; read where there are processors.
            passes: Places of the draft that are looked at, at most: forward passes of a model.
        """
        self._scorer, self._speller, self._draw, self._passes = scorer, speller, draw, passes
        self._history = history
        self._temperature = FLATTER * draw.sampling.temp
        self._only = constraint.first
        self._tokens: list[int] = []
        self._outlook = Outlook()
        self._begin = scorer.begin(*context, healing=constraint.extensions.size > 0)
        own = 1.0
        if self._begin:
            ids, scores = scorer.best((), constraint.extensions)
            score = scorer.score((), self._begin[0])
            best = max(score, scores.max(initial=score), _LEAST)  # some score, where none is finite
            weights = np.exp((scores - best) / self._temperature)
            own = float(np.exp((score - best) / self._temperature)) or float(not weights.any())
            likely = weights >= CHECKED * (own + weights.sum())
            self._outlook.add((), ids, speller.first(ids, likely, True), weights)
        self._over = None if self._begin is None or not own > 0 else Over(self._begin, b"", own)

    def stated(self) -> tuple[_Ids, _Floats] | None:
        """Return ids [n] and their probabilities [n], which sum to 1; None where the draft cannot say."""
        while self._over is not None and self._passes > 0:
            self._look(self._over, first=not self._tokens and self._over.path == self._begin)
            self._over = self._take_over()
        ids, probabilities = self._outlook.next(self._draw.vocabulary)
        if self._draw.processors and ids.size:
            probabilities = self._processed(ids, probabilities)
        kept = probabilities > 0
        return _restricted(ids[kept], probabilities[kept], self._draw.sampling) if kept.any() else None

    def follow(self, token: int) -> None:
        """Go on behind a token, one of those that were stated."""
        self._tokens.append(token)
        self._outlook.follow(token)
        self._over = self._take_over()

    def _take_over(self) -> Over | None:
        return self._outlook.take_over(SMALL, hold=self._speller.check and self._passes > 0)

    def _processed(self, ids: _Ids, probabilities: _Floats) -> _Floats:
        """Return the probabilities as the request's processors change them; zeros where one refuses the text."""
        scores = mx.array((self._temperature * np.log(probabilities)).astype(np.float32))
        logits = mx.full((1, self._draw.vocabulary), -mx.inf)
        logits[0, mx.array(ids)] = scores
        seen = mx.array([*self._history, *self._tokens])
        try:
            logits = processed(logits, self._draw.processors, seen)
        except Exception:  # the target will ask about it, if it gets there
            return np.zeros_like(probabilities)
        weights: _Floats = np.exp(np.array(logits[0, mx.array(ids)], np.float64) / self._temperature)
        return weights * (1 / (float(weights.sum()) or 1))

    def _look(self, over: Over, first: bool) -> None:
        """Ask the draft what comes after ``over``."""
        self._passes -= 1
        ids, scores = self._scorer.best(over.path)
        best = scores.max()
        mass = np.exp((scores - best) / self._temperature).sum()
        if first and self._only is not None:
            ids, scores = self._scorer.best(over.path, self._only)
        weights = np.exp((scores - best) / self._temperature) / mass
        likely = weights >= CHECKED
        if first:
            spelled = self._speller.first(ids, likely, False)
        else:
            spelled = self._speller.following(ids, likely, self._tokens, over.carried, over.held)
        self._outlook.add(over.path, ids, spelled, over.weight * weights)


def draw_tokens(following: NextTokens, limit: int, vocabulary: int) -> tuple[list[int], mx.array | None]:
    """Draw at most ``limit`` target tokens.

    Returns:
        Target ids and what each was drawn from, float32 [drawn, vocabulary]; None for none.
    """
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


def _restricted(ids: _Ids, probabilities: _Floats, sampling: Sampling) -> tuple[_Ids, _Floats]:
    """Leave out what the target's own filters would leave out of probabilities like these."""
    order = np.argsort(-probabilities, kind="stable")
    ids, probabilities = ids[order], probabilities[order]
    kept = probabilities >= sampling.min_p * probabilities[0]
    if 0 < sampling.top_p < 1:
        kept &= np.cumsum(probabilities) - probabilities < sampling.top_p
    if sampling.top_k:
        kept[sampling.top_k :] = False
    return ids[kept], probabilities[kept] / probabilities[kept].sum()


def _rows(stated: Sequence[tuple[_Ids, _Floats]], vocabulary: int) -> mx.array:
    """Return the distributions on the device, float32 [stated, vocabulary]; lazy."""
    row = np.repeat(np.arange(len(stated)), [len(ids) for ids, _ in stated])
    place = mx.array((vocabulary * row + np.concatenate([ids for ids, _ in stated])).astype(np.int32))
    values = mx.array(np.concatenate([probabilities for _, probabilities in stated]).astype(np.float32))
    return mx.zeros((len(stated) * vocabulary,)).at[place].add(values).reshape(len(stated), vocabulary)
