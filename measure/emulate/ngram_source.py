"""Drafts of an n-gram model: a draft that can be counted anywhere in a minute."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from spectool.measure.emulate.ngram_model import Context, NgramModel
from spectool.runtime.translation.protocol import Constraint, DraftContext, DraftSource

_Ids = NDArray[np.int32]
_LOOKS = 32  # candidates looked at one by one before all that are allowed are scored at once
_NOTHING = -1, -1.0  # no id, and no probability


class NgramSource(DraftSource):
    """Drafts of an n-gram model, greedily; nothing is kept between calls."""

    def __init__(self, model: NgramModel, most_asked: int = 256) -> None:
        """Draft with ``model``.

        Args:
            model: An n-gram model over draft ids.
            most_asked: Candidates for the first token that ``constraint.allows`` is asked about
                before the source gives up.
        """
        self._model = model
        self._most_asked = most_asked
        # Set for the ids of a constraint while its candidates are looked for; all false between calls.
        self._plain_mask = np.zeros(model.size, dtype=bool)
        self._healed_mask = np.zeros(model.size, dtype=bool)

    def start(self) -> None:
        """Begin a text."""

    def draft(self, context: DraftContext, constraint: Constraint, limit: int) -> tuple[list[int], bool]:
        """Guess at most ``limit`` draft ids; tell whether the first one is healed.

        A plain candidate wins a tie with a healed one. Empty when the constraint lets nothing
        pass among the first ``most_asked`` candidates.
        """
        if limit <= 0:
            return [], False
        model, ids = self._model, context.ids
        before = model.context(ids[max(0, len(ids) - model.order) : -1])
        present = model.advance(before, ids[-1]) if ids else before
        try:
            first, healed = self._first(before, present, ids[-1] if ids else None, constraint)
        finally:
            self._healed_mask[constraint.extensions] = False
            if constraint.first is not None:
                self._plain_mask[constraint.first] = False
        if first is None:
            return [], False
        drafts = [first]
        now = model.advance(before if healed else present, first)
        while len(drafts) < limit:
            best = next((token for token, _ in self._allowed(now, None, constraint.within) if token >= 0), None)
            if best is None:
                break
            drafts.append(best)
            now = model.advance(now, best)
        return drafts, healed

    def _first(
        self, before: Context, present: Context, last: int | None, constraint: Constraint
    ) -> tuple[int | None, bool]:
        """Return the best first token that the constraint lets pass, and whether it is healed."""
        allows = constraint.allows
        if constraint.first is not None:
            self._plain_mask[constraint.first] = True
        plain = self._allowed(present, constraint.first, constraint.within, self._plain_mask)
        token, score = next(plain, _NOTHING)
        healed: Iterator[tuple[int, float]] = iter(())
        scale = 1.0
        if last is not None and constraint.extensions.size:
            self._healed_mask[constraint.extensions] = True
            healed = self._allowed(before, constraint.extensions, constraint.within, self._healed_mask)
            scale = self._model.probability(before, last) if 0 <= last < self._model.size else 0.0
        other, other_score = next(healed, _NOTHING)
        asked = 0
        while asked < self._most_asked and (score >= 0 or other_score >= 0):
            if score >= 0 and scale * score >= other_score:
                if token >= 0:
                    asked += 1
                    if allows(token, False):
                        return token, False
                token, score = next(plain, _NOTHING)
            else:
                if other >= 0:
                    asked += 1
                    if allows(other, True):
                        return other, True
                other, other_score = next(healed, _NOTHING)
        return None, False

    def _allowed(
        self,
        context: Context,
        tokens: _Ids | None,
        within: NDArray[np.bool_] | None,
        mask: NDArray[np.bool_] | None = None,
    ) -> Iterator[tuple[int, float]]:
        """Return ids with their probability, the most probable first, or -1 where one is not allowed.

        Args:
            context: What they follow.
            tokens: The only ids allowed; None for any.
            within: Mask over ids that they must be in as well; None for any.
            mask: True at ``tokens``.
        """
        if tokens is None and within is None:
            return self._model.candidates(context)
        return self._filtered(context, tokens, within, mask)

    def _filtered(
        self,
        context: Context,
        tokens: _Ids | None,
        within: NDArray[np.bool_] | None,
        mask: NDArray[np.bool_] | None,
    ) -> Iterator[tuple[int, float]]:
        """Yield what `_allowed` returns where there is a restriction."""
        chosen = None if tokens is None or mask is None else mask.data
        inside = None if within is None else within.data
        given = set()
        # Narrow choices are soon scored all at once: that takes longer than a few looks.
        looks = _LOOKS if tokens is not None else 16 * _LOOKS
        for token, score in self._model.candidates(context):
            if (chosen is None or chosen[token]) and (inside is None or (token < len(inside) and inside[token])):
                given.add(token)
                yield token, score
            else:
                yield -1, score
            looks -= 1
            if not looks:
                break
        if tokens is None:
            tokens = np.arange(self._model.size, dtype=np.int32)
        if within is not None:
            tokens = tokens[tokens < len(within)]
            tokens = tokens[within[tokens]]
        scores = self._model.probabilities(context, tokens)
        for place in np.lexsort((tokens, -scores)).tolist():
            if tokens[place] not in given:
                yield int(tokens[place]), float(scores[place])
