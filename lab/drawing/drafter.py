"""A `TranslatedDrafter` that draws where that pays.

Above temperature 0 there are two arms. *Drawn* drafts come from a stated distribution over target ids, and *guesses*
are the most probable draft tokens, translated. Drawn drafts are accepted more often where the draft's tokens are as
long as the target's. Where they are shorter, several make up one target token: guesses join all of them, but a stated
distribution joins only the likely ones. So guessing is tried now and then, and preferred while more of its tokens are
accepted. The arm has to be chosen before anything is drawn.
"""

from collections.abc import Sequence
from typing import Any

from spectool.lab.drawing.next_tokens import NextTokens, draw_tokens
from spectool.lab.drawing.scorer import ModelScorer
from spectool.lab.drawing.token_rows import TokenRows, spelling_table
from spectool.lab.spellings import spellings
from spectool.runtime.drafters.drafter import Drafting, Proposal, accepted_length
from spectool.runtime.drafters.model_source import ModelSource
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.sampling.verification import Draw
from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator
from spectool.tokenization.incremental.by_ids import IncrementalBPE
from spectool.tokenization.incremental.by_text import whole_characters

_DECAY = 0.99  # weight of what was learnt, from cycle to cycle, because texts change
_PRIOR = 4.0  # proposals that the expectation counts for


class DrawingTranslator(ByteAlignedTranslator):
    """A byte-aligned translator that says what single draft tokens spell."""

    def __init__(self, *sides: Any) -> None:
        """As `ByteAlignedTranslator`."""
        super().__init__(*sides)
        spelled = spellings(self._draft, self._target)
        self._table = spelling_table(spelled, self._alignment.draft.counterpart, self._draft.token_bytes)
        self._spelled: dict[tuple[int, bytes, bytes], tuple[tuple[int, ...], bytes]] = {}

    def token_rows(self) -> TokenRows | None:
        """What single draft tokens say at the present frontier; None for a target through text."""
        if not isinstance(self._encoder, IncrementalBPE):
            return None
        return TokenRows(
            table=self._table,
            token_bytes=self._draft.token_bytes,
            encoder=self._encoder,
            known=self._spelled,
            committed=self._text,
            overlaps=(self._overlap(False), self._overlap(True) if self._last() else b""),
            at_start=None if self._text else self._at_start,
            check_first=not self._view.pending,
            is_settled=self.is_settled,
        )

    def _at_start(self, token: int) -> tuple[int, ...]:
        """The target ids of a draft token that begins a text, without its own artificial space and with the target's.

        None for special tokens and parts of characters.
        """
        assert isinstance(self._encoder, IncrementalBPE)
        data = self._draft.token_bytes[token]
        if not data or whole_characters(data) < len(data):
            return ()
        space = b" " * self._target.leading_space
        return self._encoder.encode(space + (data.removeprefix(b" ") if self._draft.leading_space else data))


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


class DrawingDrafter(TranslatedDrafter):
    """Proposes what a model with another tokenizer says; what was learnt about the arms outlives a generation."""

    def __init__(
        self, source: ModelSource, translator: DrawingTranslator, num_draft_tokens: int | None = None, least: float = 0
    ) -> None:
        """As `TranslatedDrafter`; drawn drafts end once they are right with less than ``least``."""
        super().__init__(source, translator, num_draft_tokens)
        self._drawing_source, self._rows, self._least = source, translator, least
        self._draw: Draw | None = None
        self._drawing, self._guessing = Arm(1.0), Arm(0.5)
        self._used: Arm | None = None  # in this cycle; None where only one is possible
        self._proposed: Sequence[int] = ()
        self._tokens: list[int] = []  # committed target ids

    def draw_with(self, draw: Draw | None) -> None:
        """Draw drafts by ``draw`` where that is possible and pays; None takes the most probable ones."""
        self._draw, self._used = draw, None

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a generation after ``prompt``."""
        super().start(prompt)
        self._tokens = list(prompt)

    def drafting(self, limit: int) -> Drafting[Proposal]:
        """The translated draft, drawn in one step or guessed, cut to ``limit`` target tokens."""
        proposal = self._drawn(self._draw, limit) if self._draw is not None and limit > 0 else None
        if proposal is None:
            proposal = yield from super().drafting(limit)
        self._proposed = proposal.tokens
        return proposal

    def commit(self, tokens: Sequence[int]) -> None:
        """Learn what became of the proposal."""
        if self._used is not None:
            right = accepted_length(self._proposed, tokens)
            for arm in (self._drawing, self._guessing):
                arm.learn(right if arm is self._used else None)
            self._used = None
        super().commit(tokens)
        self._tokens += tokens

    def _drawn(self, draw: Draw, limit: int) -> Proposal | None:
        """A drawn proposal of at most ``limit`` target tokens; None where guessing is better."""
        rows = self._rows.token_rows()
        if rows is None:
            return None
        if self._drawing.upper_bound < self._guessing.upper_bound:
            self._used = self._guessing
            return None
        self._used = self._drawing
        count = limit if self._num_draft_tokens is None else min(limit, self._num_draft_tokens)
        context, constraint = self._rows.draft_context(), self._rows.constraint()
        scorer = ModelScorer(self._drawing_source)
        following = NextTokens(scorer, rows, context, constraint, draw, self._tokens, count, self._least)
        tokens, distribution = draw_tokens(following, limit, draw.vocabulary)
        each = following.likelihood ** (1 / max(1, len(tokens)))
        return Proposal(tokens, self.name, (each,) * len(tokens), distribution)
