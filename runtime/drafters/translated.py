"""A draft source in another vocabulary and a translator, joined to a drafter.

    propose   draft_context -> constraint -> source drafts -> translate
    commit    committed target ids -> translator

A cycle is one ``propose`` and the ``commit`` that follows it. The prompt is no part of any.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from time import perf_counter_ns
from typing import TYPE_CHECKING

from spectool.runtime.decoding.drafter import Proposal
from spectool.runtime.translation.protocol import Allows, DraftSource, DrawingSource, Translator, allow_any

if TYPE_CHECKING:
    from spectool.runtime.caches.draft_cache import DraftCache
    from spectool.runtime.decoding.sampling import Draw


@dataclass(slots=True)
class TranslationCounts:
    """What translating cost. Mutable: the drafter adds to it cycle by cycle.

    Attributes:
        cycles: Cycles in which a proposal was asked for.
        without_proposal: Cycles that ended with none.
        with_strings: Cycles in which text was decoded or encoded.
        drafted: Draft tokens that the source guessed.
        translated: Target tokens that these became, before any cut.
        nanoseconds: Time in the translator: resync, constraint, boundary checks, translation.
    """

    cycles: int = 0
    without_proposal: int = 0
    with_strings: int = 0
    drafted: int = 0
    translated: int = 0
    nanoseconds: int = 0

    @property
    def string_free(self) -> int:
        """Cycles without string work."""
        return self.cycles - self.with_strings

    @property
    def string_free_rate(self) -> float:
        """Cycles without string work / cycles; 0.0 before the first."""
        return self.string_free / self.cycles if self.cycles else 0.0

    @property
    def microseconds_per_cycle(self) -> float:
        """Time in the translator / cycles, in microseconds; 0.0 before the first."""
        return self.nanoseconds / self.cycles / 1000 if self.cycles else 0.0

    def __add__(self, other: "TranslationCounts") -> "TranslationCounts":
        """Return the sums of two runs."""
        return TranslationCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


class TranslatedDrafter:
    """Proposes what a model with another tokenizer guesses.

    Attributes:
        name: Name in statistics.
        generation: Counts since the latest ``start``.
    """

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
            num_draft_tokens: Draft tokens guessed in a cycle at most; None: as many as target tokens are asked
                for, and never more. They may become more of these, or fewer.
            name: Name in statistics; the strategy's where none is given.
        """
        self.name = name or translator.name
        self.generation = TranslationCounts()
        self._source = source
        self._translator = translator
        self._num_draft_tokens = num_draft_tokens
        self._earlier = TranslationCounts()
        self._draw: Draw | None = None
        self._tokens: list[int] = []  # committed target ids
        self._strings_before: int | None = None  # the translator's string calls when this cycle began

    @property
    def costs_a_pass(self) -> bool:
        """Whether each draft token costs a forward pass of a model."""
        return bool(getattr(self._source, "costs_a_pass", False))

    @property
    def cache(self) -> "DraftCache | None":
        """The cache of the source's model; None where it has none."""
        cache: DraftCache | None = getattr(self._source, "cache", None)
        return cache

    @property
    def total(self) -> TranslationCounts:
        """Counts of all generations so far, the present one included."""
        return self._earlier + self.generation

    def draw_with(self, draw: "Draw | None") -> None:
        """Draw drafts by ``draw``, where strategy and source allow it; None takes the most probable ones again."""
        self._draw = draw

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a generation after ``prompt`` (target ids)."""
        self._earlier, self.generation = self.total, TranslationCounts()
        self._strings_before = None
        self._tokens = list(prompt)
        self._source.start()
        self._translator.start()
        if len(prompt):
            self._translator.commit(prompt)

    def propose(self, limit: int) -> Proposal:
        """Return the translated draft, cut to ``limit`` target tokens; nothing is guessed where that is 0."""
        if limit <= 0:
            return Proposal((), self.name)
        self._strings_before = self._translator.string_calls
        begun = perf_counter_ns()
        context = self._translator.draft_context()
        constraint = self._translator.constraint()
        self.generation.nanoseconds += perf_counter_ns() - begun
        if constraint.allows is not allow_any:
            constraint = replace(constraint, allows=self._timed(constraint.allows))
        count = limit if self._num_draft_tokens is None else min(limit, self._num_draft_tokens)
        distribution = None
        if self._draw is not None and constraint.partners is not None and isinstance(self._source, DrawingSource):
            tokens, distribution = self._source.draw(context, constraint.partners, self._draw, self._tokens, count)
            drafted = len(tokens)
        else:
            drafts, healed = self._source.draft(context, constraint, count)
            drafted = len(drafts)
            begun = perf_counter_ns()
            tokens = self._translator.translate(drafts, healed) if drafts else []
            self.generation.nanoseconds += perf_counter_ns() - begun
        self.generation.cycles += 1
        self.generation.without_proposal += not tokens
        self.generation.drafted += drafted
        self.generation.translated += len(tokens)
        self._note_strings()
        return Proposal(tokens[:limit], self.name, distribution=distribution)

    def commit(self, tokens: Sequence[int]) -> None:
        """Tell the translator what the target committed."""
        begun = perf_counter_ns()
        self._translator.commit(tokens)
        self.generation.nanoseconds += perf_counter_ns() - begun
        self._tokens += tokens
        self._note_strings()
        self._strings_before = None

    def _note_strings(self) -> None:
        """Count the present cycle once if the translator has touched text in it."""
        if self._strings_before is not None and self._translator.string_calls != self._strings_before:
            self.generation.with_strings += 1
            self._strings_before = None

    def _timed(self, allows: Allows) -> Allows:
        """Count the time of a boundary check as the translator's."""

        def timed(token: int, healed: bool) -> bool:
            begun = perf_counter_ns()
            allowed = allows(token, healed)
            self.generation.nanoseconds += perf_counter_ns() - begun
            return allowed

        return timed
