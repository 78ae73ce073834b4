"""Drafts from a model with another tokenizer: its draft ids, joined with a translator into target ids.

    propose   draft_context -> constraint -> source drafts -> translate      (`drafting`, step by step)
    commit    committed target ids -> translator

Above temperature 0, too, its most probable tokens are drafted, and verified by exact match. Drawing them from a stated
distribution over target ids is in the laboratory (docs/lab/drawing.md).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spectool.runtime.drafters.drafter import Drafter, Drafting, Proposal
from spectool.tokenization.incremental.common_prefix import common_prefix

if TYPE_CHECKING:
    from spectool.runtime.drafters.model_source import ModelSource
    from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator

FURTHER = 2  # draft tokens, beyond those asked for, that may settle the last target id


class TranslatedDrafter(Drafter):
    """Proposes what a model with another tokenizer drafts."""

    name = "model"  # as one with the same tokenizer

    def __init__(
        self,
        source: "ModelSource",
        translator: "ByteAlignedTranslator",
        num_draft_tokens: int | None = None,
        honesty: float | None = None,
    ) -> None:
        """Join ``source`` and ``translator``.

        Args:
            source: Model over draft ids.
            translator: Between its ids and the target's.
            num_draft_tokens: Maximum number of draft tokens in a cycle, which may become more or fewer target tokens.
                None asks for as many as target tokens are wanted.
            honesty: The share of what the model says that has come true, if it is known.
        """
        self.costs_a_pass, self.cache, self.honesty = source.costs_a_pass, source.cache, honesty
        self._source, self._translator = source, translator
        self._num_draft_tokens = num_draft_tokens
        self._known: list[int] = []  # what the translator has been told

    def known(self, prompt: Sequence[int]) -> int:
        """About how many leading tokens of a prompt its cache holds: in the draft's ids it is as far as that."""
        if self.cache is None:
            return 0
        read = len(self.cache.tokens) / max(1, len(self._translator.draft_context()))
        return min(common_prefix(self._known, prompt), int(read * len(self._known)))

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a generation after ``prompt``; if it goes on from the text before, only the rest is translated."""
        held = len(self._known)
        if not held or self._known != list(prompt[:held]):
            self._translator.start()
            self._known = []
        self.commit(prompt[len(self._known) :])

    def fork(self) -> "TranslatedDrafter":
        """A drafter with the same model and tables, and with a cache and a text of its own."""
        return TranslatedDrafter(self._source.fork(), self._translator.fork(), self._num_draft_tokens, self.honesty)

    def drafting(self, limit: int) -> Drafting[Proposal]:
        """The translated draft, cut to ``limit`` target tokens, step by step; nothing is guessed where that is 0."""
        if limit <= 0:
            return Proposal((), self.name)
        count = limit if self._num_draft_tokens is None else min(limit, self._num_draft_tokens)
        translator = self._translator
        known, self._known = self._known, []  # so that the next text begins again if this fails
        unchanged, context, constraint = translator.unchanged(), translator.draft_context(), translator.constraint()
        drafts, healed = yield from self._source.drafting(context, constraint, count, unchanged)
        self._known = known
        if not drafts:
            return Proposal((), self.name)
        drafts, tokens = yield from self._settled(drafts, healed)
        tokens, likely = tokens[:limit], self._source.likely
        probabilities = translator.probabilities(drafts, healed, likely, tokens) if likely else ()
        return Proposal(tokens, self.name, probabilities)

    def _settled(self, drafts: list[int], healed: bool) -> Drafting[tuple[list[int], list[int]]]:
        """A draft that is made longer until its last target id is unlikely to change, and its target ids."""
        tokens = self._translator.translate(drafts, healed)
        asked = max(1, len(tokens))
        for _ in range(FURTHER):
            if len(tokens) > asked or self._translator.is_settled(tokens):
                break
            if not (more := (yield from self._source.going_on())):
                break
            drafts = [*drafts, *more]
            tokens = self._translator.translate(drafts, healed)
        return drafts, tokens if self._translator.is_settled(tokens) else tokens[:asked]

    def commit(self, tokens: Sequence[int]) -> None:
        """Pass on to the translator what the target committed."""
        known, self._known = self._known, []  # so that the next text begins again if this fails
        if tokens:
            self._translator.commit(tokens)
        known += tokens
        self._known = known
