"""Drawing or guessing: the two ways to draft above temperature 0 with a model of another tokenizer.

Drawn drafts come from a stated distribution over target ids. Guesses are the most probable draft tokens, translated.
Drawn ones are accepted more often where the draft's tokens are as long as the target's. Where they are shorter, several
make a target token: guesses join all of them, and a stated distribution only the likely ones.

Drawing is better for most pairs, so guessing is tried now and then, and preferred while it has more tokens accepted.
Which of the two is used is settled before anything is drawn, as it must be (docs/sampling.md).
"""

from collections.abc import Sequence

from spectool.runtime.decoding.drafter import Proposal, accepted_length
from spectool.runtime.decoding.verification import Draw
from spectool.runtime.translation.drawing import NextTokens, draw_tokens
from spectool.runtime.translation.protocol import DraftSource, Translator

_KEPT = 0.99  # of what was learnt, from cycle to cycle: texts change
_PRIOR = 4.0  # proposals that what is expected counts for


class Arm:
    """One way to draft, and how many tokens of its proposals were accepted."""

    def __init__(self, expected: float) -> None:
        """Expect this many accepted tokens of a proposal."""
        self._accepted, self._asked = expected * _PRIOR, _PRIOR

    @property
    def upper_bound(self) -> float:
        """The mean, and more the less is known: a way that was not used for long is tried again."""
        return float(self._accepted / self._asked + self._asked**-0.5)

    def learn(self, accepted: int | None) -> None:
        """Let a cycle pass in which ``accepted`` tokens were; None if this way was not used."""
        self._accepted *= _KEPT
        self._asked *= _KEPT
        if accepted is not None:
            self._accepted += accepted
            self._asked += 1


class DrawnDrafts:
    """Draws drafts where that promises more than guessing; what was learnt stays from text to text."""

    def __init__(self, source: DraftSource, translator: Translator) -> None:
        """Draw what ``source`` says, in target ids by ``translator``."""
        self._source, self._translator = source, translator
        self._drawing, self._guessing = Arm(1.0), Arm(0.5)
        self._proposed: Sequence[int] = ()
        self.begin(None)

    def begin(self, draw: Draw | None) -> None:
        """Draw by ``draw`` from now on, in another text; None draws nothing."""
        self._draw = draw
        self._used: Arm | None = None  # in this cycle

    def propose(self, name: str, history: Sequence[int], count: int, limit: int) -> Proposal | None:
        """A drawn proposal; None where guessing is better, or all there is.

        Args:
            name: Of the drafter.
            history: Committed target ids.
            count: Maximum number of draft tokens.
            limit: Maximum number of target tokens.
        """
        if self._draw is None:
            return None
        scorer, rows = self._source.scorer(), self._translator.token_rows()
        if scorer is None or rows is None:
            return None
        if self._drawing.upper_bound < self._guessing.upper_bound:
            self._used = self._guessing
            return None
        context, constraint = self._translator.draft_context(), self._translator.constraint()
        following = NextTokens(scorer, rows, context, constraint, self._draw, history, count)
        drawn, distribution = draw_tokens(following, limit, self._draw.vocabulary)
        self._used, self._proposed = self._drawing, drawn
        return Proposal(drawn, name, distribution=distribution)

    def guessed(self, tokens: Sequence[int]) -> None:
        """Remember what was guessed instead."""
        self._proposed = tokens

    def learn(self, committed: Sequence[int]) -> None:
        """Count how many tokens of the proposal were right."""
        if self._used is not None:
            right = accepted_length(self._proposed, committed)
            for arm in (self._drawing, self._guessing):
                arm.learn(right if arm is self._used else None)
            self._used = None
