"""A draft source in another vocabulary and a translator, joined to a drafter.

propose   draft_context -> constraint -> source drafts -> translate
commit    committed target ids -> translator
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spectool.runtime.decoding.drafter import Drafter, Proposal
from spectool.runtime.translation.protocol import DraftSource, Translator

if TYPE_CHECKING:
    from spectool.runtime.decoding.verification import Draw
    from spectool.runtime.drafters.drawn import DrawnDrafts


class TranslatedDrafter(Drafter):
    """Proposes what a model with another tokenizer guesses."""

    def __init__(
        self,
        source: DraftSource,
        translator: Translator,
        num_draft_tokens: int | None = None,
        *,
        name: str | None = None,
    ) -> None:
        """Join ``source`` and ``translator``.

        Args:
            source: Model over draft ids.
            translator: Strategy between its ids and the target's.
            num_draft_tokens: Maximum number of draft tokens in a cycle; None: as many as target tokens are asked for,
                and never more. They may become more of these, or fewer.
            name: Name in statistics; the strategy's where none is given.
        """
        self.name = name or translator.name
        self.costs_a_pass, self.cache = source.costs_a_pass, source.cache
        self._source, self._translator = source, translator
        self._num_draft_tokens = num_draft_tokens
        self._drawn: DrawnDrafts | None = None
        self._tokens: list[int] = []  # committed target ids

    def draw_with(self, draw: "Draw | None") -> None:
        """Draw drafts by ``draw`` where that is possible and pays; None takes the most probable ones."""
        if self._drawn is None and draw is not None:
            from spectool.runtime.drafters.drawn import DrawnDrafts

            self._drawn = DrawnDrafts(self._source, self._translator)
        if self._drawn is not None:
            self._drawn.begin(draw)

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a generation after ``prompt`` (target ids)."""
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
        if self._drawn and (proposal := self._drawn.propose(self.name, self._tokens, count, limit)):
            return proposal
        drafts, healed = self._source.draft(self._translator.draft_context(), self._translator.constraint(), count)
        tokens = (self._translator.translate(drafts, healed) if drafts else [])[:limit]
        if self._drawn:
            self._drawn.guessed(tokens)
        return Proposal(tokens, self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        """Pass on to the translator what the target committed."""
        if self._drawn:
            self._drawn.learn(tokens)
        self._translator.commit(tokens)
        self._tokens += tokens
