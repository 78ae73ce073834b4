"""Drafts from a model with another tokenizer: its draft ids, joined with a translator into target ids.

    propose   draft_context -> constraint -> source drafts -> translate
    commit    committed target ids -> translator

Above temperature 0 there are two arms. *Drawn* drafts come from a stated distribution over target ids, and *guesses*
are the most probable draft tokens, translated. Drawn drafts are accepted more often where the draft's tokens are as
long as the target's. Where they are shorter, several make up one target token: guesses join all of them, but a stated
distribution joins only the likely ones. Drawing is better for most pairs, so guessing is tried now and then, and
preferred while more of its tokens are accepted. The arm has to be chosen before anything is drawn (docs/sampling.md).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spectool.runtime.drafters.drafter import Drafter, Proposal, accepted_length
from spectool.runtime.translation.protocol import FURTHER, DraftSource

if TYPE_CHECKING:
    from spectool.runtime.sampling.verification import Draw
    from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator

_DECAY = 0.99  # weight of what was learnt, from cycle to cycle, because texts change
_PRIOR = 4.0  # proposals that the expectation counts for


class Arm:
    """One way to draft, and how many tokens of its proposals were accepted."""

    def __init__(self, expected: float) -> None:
        self._accepted, self._asked = expected * _PRIOR, _PRIOR

    @property
    def upper_bound(self) -> float:
        """Mean accepted tokens, plus more the less is known, so that an arm not used for long is tried again."""
        return float(self._accepted / self._asked + self._asked**-0.5)

    def learn(self, accepted: int | None) -> None:
        """Let a cycle pass in which this arm had ``accepted`` tokens; None if it was not used."""
        self._accepted *= _DECAY
        self._asked *= _DECAY
        if accepted is not None:
            self._accepted += accepted
            self._asked += 1


class TranslatedDrafter(Drafter):
    """Proposes what a model with another tokenizer drafts; what was learnt about the arms outlives a generation."""

    name = "model"  # as one with the same tokenizer

    def __init__(
        self,
        source: DraftSource,
        translator: "ByteAlignedTranslator",
        num_draft_tokens: int | None = None,
    ) -> None:
        """Join ``source`` and ``translator``.

        Args:
            source: Model over draft ids.
            translator: Between its ids and the target's.
            num_draft_tokens: Maximum number of draft tokens in a cycle, which may become more or fewer target tokens.
                None asks for as many as target tokens are wanted.
        """
        self.costs_a_pass, self.cache = source.costs_a_pass, source.cache
        self._source, self._translator = source, translator
        self._num_draft_tokens = num_draft_tokens
        self._draw: Draw | None = None
        self._drawing, self._guessing = Arm(1.0), Arm(0.5)
        self._used: Arm | None = None  # in this cycle; None where only one is possible
        self._proposed: Sequence[int] = ()
        self._tokens: list[int] = []  # committed target ids

    def draw_with(self, draw: "Draw | None") -> None:
        """Draw drafts by ``draw`` where that is possible and pays; None takes the most probable ones."""
        self._draw, self._used = draw, None

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a generation after ``prompt``."""
        self._tokens = list(prompt)
        self._source.start()
        self._translator.start()
        if len(prompt):
            self._translator.commit(prompt)

    def propose(self, limit: int) -> Proposal:
        """The translated draft, cut to ``limit`` target tokens; nothing is guessed where that is 0."""
        if limit <= 0:
            return Proposal((), self.name)
        count = limit if self._num_draft_tokens is None else min(limit, self._num_draft_tokens)
        if self._draw is not None and (proposal := self._drawn(self._draw, count, limit)):
            return proposal
        drafts, healed = self._source.draft(self._translator.draft_context(), self._translator.constraint(), count)
        tokens = self._settled(drafts, healed)[:limit] if drafts else []
        self._proposed = tokens
        return Proposal(tokens, self.name, _evenly(self._source.likelihood, len(tokens)))

    def _settled(self, drafts: list[int], healed: bool) -> list[int]:
        """The target ids of a draft, which is made longer until what follows them is unlikely to change the last one.

        Those of the longer draft are proposed as well, as far as they are settled.
        """
        tokens = self._translator.translate(drafts, healed)
        asked = max(1, len(tokens))
        for _ in range(FURTHER):
            if len(tokens) > asked or self._translator.is_settled(tokens) or not (more := self._source.more()):
                break
            drafts = [*drafts, *more]
            tokens = self._translator.translate(drafts, healed)
        return tokens if self._translator.is_settled(tokens) else tokens[:asked]

    def commit(self, tokens: Sequence[int]) -> None:
        """Pass on to the translator what the target committed."""
        if self._used is not None:
            right = accepted_length(self._proposed, tokens)
            for arm in (self._drawing, self._guessing):
                arm.learn(right if arm is self._used else None)
            self._used = None
        self._translator.commit(tokens)
        self._tokens += tokens

    def _drawn(self, draw: "Draw", count: int, limit: int) -> Proposal | None:
        """A drawn proposal of ``count`` draft and ``limit`` target tokens at most; None where guessing is better."""
        from spectool.runtime.translation.drawing import NextTokens, draw_tokens

        scorer, rows = self._source.scorer(), self._translator.token_rows()
        if scorer is None or rows is None:
            return None
        if self._drawing.upper_bound < self._guessing.upper_bound:
            self._used = self._guessing
            return None
        context, constraint = self._translator.draft_context(), self._translator.constraint()
        least = self._source.min_probability
        following = NextTokens(scorer, rows, context, constraint, draw, self._tokens, count, least)
        tokens, distribution = draw_tokens(following, limit, draw.vocabulary)
        self._used, self._proposed = self._drawing, tokens
        return Proposal(tokens, self.name, _evenly(following.likelihood, len(tokens)), distribution)


def _evenly(likelihood: float, count: int) -> tuple[float, ...]:
    """The probability of each of ``count`` tokens that are all right with this probability."""
    return (likelihood ** (1 / count),) * count if count else ()
