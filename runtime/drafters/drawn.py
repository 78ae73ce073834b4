"""Drawing or guessing: the two ways to draft above temperature 0 with a model of another tokenizer.

Drawn drafts come from a distribution over target ids that is stated. Guesses are the most probable draft tokens,
translated. Drawn ones stand more often where the draft's tokens are as long as the target's. Of shorter ones several
make a target token: guesses join all of them, and a stated distribution the likely ones.

Drawing is the better way for most pairs. So the other one is tried now and then, and asked where it has had more tokens
accepted. It is settled before anything is drawn, as it must be (docs/sampling.md).
"""

from collections.abc import Sequence

from spectool.runtime.decoding.drafter import Proposal, accepted_length
from spectool.runtime.decoding.verification import Draw
from spectool.runtime.translation.drawing import NextTokens, draw_tokens
from spectool.runtime.translation.protocol import DraftSource, Translator

_KEPT = 0.99  # of what was learnt, from cycle to cycle: texts change
_PRIOR = 4.0  # proposals that what is expected counts for


class Way:
    """One way to draft: how many tokens a proposal of it has had accepted."""

    def __init__(self, expected: float) -> None:
        """Expect so many accepted tokens of a proposal."""
        self._accepted, self._asked = expected * _PRIOR, _PRIOR

    @property
    def promise(self) -> float:
        """The mean, and more the less is known: a way that was not asked for long is tried again."""
        return float(self._accepted / self._asked + self._asked**-0.5)

    def learn(self, accepted: int | None) -> None:
        """Let a cycle pass in which so many tokens were accepted; None: it was not asked."""
        self._accepted *= _KEPT
        self._asked *= _KEPT
        if accepted is not None:
            self._accepted += accepted
            self._asked += 1


class DrawnDrafts:
    """Draws drafts where that promises more than guessing; what was learnt stays from text to text."""

    def __init__(self, source: DraftSource, translator: Translator) -> None:
        """Draw what ``source`` says, spelt by ``translator``."""
        self._source, self._translator = source, translator
        self._drawing, self._guessing = Way(1.0), Way(0.5)
        self._proposed: Sequence[int] = ()
        self.begin(None)

    def begin(self, draw: Draw | None) -> None:
        """Draw by ``draw`` from now on, in another text; None draws nothing."""
        self._draw = draw
        self._asked: Way | None = None  # in this cycle

    def propose(self, name: str, history: Sequence[int], count: int, limit: int) -> Proposal | None:
        """Draw a proposal; None where guessing is better, or all there is.

        Args:
            name: Of the drafter.
            history: Committed target ids.
            count: Draft tokens at most.
            limit: Target tokens at most.
        """
        if self._draw is None:
            return None
        scorer, speller = self._source.scorer(), self._translator.speller()
        if scorer is None or speller is None:
            return None
        if self._drawing.promise < self._guessing.promise:
            self._asked = self._guessing
            return None
        context, constraint = self._translator.draft_context(), self._translator.constraint()
        following = NextTokens(scorer, speller, context, constraint, self._draw, history, count)
        drawn, distribution = draw_tokens(following, limit, self._draw.vocabulary)
        self._asked, self._proposed = self._drawing, drawn
        return Proposal(drawn, name, distribution=distribution)

    def guessed(self, tokens: Sequence[int]) -> None:
        """Take note of what was guessed instead."""
        self._proposed = tokens

    def learn(self, committed: Sequence[int]) -> None:
        """Count how many tokens of the pending proposal were right."""
        if self._asked is not None:
            right = accepted_length(self._proposed, committed)
            for way in (self._drawing, self._guessing):
                way.learn(right if way is self._asked else None)
            self._asked = None
