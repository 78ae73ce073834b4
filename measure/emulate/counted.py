"""What translating costs: cycles, string work and time of a translator, counted from outside."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from time import perf_counter_ns
from typing import TypeVar

from spectool.runtime.decoding.drafter import Proposal
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.translation.protocol import Constraint, DraftContext, DraftSource, Translator, allow_any

Result = TypeVar("Result")


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


class _CountedTranslator:
    """A translator whose calls are timed and whose tokens are counted."""

    def __init__(self, translator: Translator) -> None:
        self.name = translator.name
        self.counts = TranslationCounts()
        self._inner = translator

    @property
    def string_calls(self) -> int:
        return self._inner.string_calls

    def start(self) -> None:
        self._inner.start()

    def commit(self, tokens: Sequence[int]) -> None:
        self._timed(lambda: self._inner.commit(tokens))

    def draft_context(self) -> DraftContext:
        return self._timed(self._inner.draft_context)

    def constraint(self) -> Constraint:
        constraint = self._timed(self._inner.constraint)
        allows = constraint.allows
        if allows is allow_any:
            return constraint
        return replace(constraint, allows=lambda token, healed: self._timed(lambda: allows(token, healed)))

    def translate(self, drafts: Sequence[int], healed: bool = False) -> list[int]:
        tokens = self._timed(lambda: self._inner.translate(drafts, healed))
        self.counts.drafted += len(drafts)
        self.counts.translated += len(tokens)
        return tokens

    def _timed(self, call: Callable[[], Result]) -> Result:
        begun = perf_counter_ns()
        try:
            return call()
        finally:
            self.counts.nanoseconds += perf_counter_ns() - begun


class CountedDrafter(TranslatedDrafter):
    """A `TranslatedDrafter` that counts what translating costs.

    Attributes:
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
        """Join ``source`` and ``translator``; arguments as of `TranslatedDrafter`."""
        self._counted = _CountedTranslator(translator)
        self._earlier = TranslationCounts()
        self._strings_before: int | None = None  # the translator's string calls when this cycle began
        super().__init__(source, self._counted, num_draft_tokens, name=name)

    @property
    def generation(self) -> TranslationCounts:
        """Counts since the latest ``start``."""
        return self._counted.counts

    @property
    def total(self) -> TranslationCounts:
        """Counts of all generations so far, the present one included."""
        return self._earlier + self.generation

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a generation after ``prompt`` (target ids), which is no part of the counts."""
        self._earlier, self._strings_before = self.total, None
        super().start(prompt)
        self._counted.counts = TranslationCounts()

    def propose(self, limit: int) -> Proposal:
        """Return the translated draft, as `TranslatedDrafter` does."""
        if limit <= 0:
            return super().propose(limit)
        self._strings_before = self._counted.string_calls
        proposal = super().propose(limit)
        self.generation.cycles += 1
        self.generation.without_proposal += not proposal.tokens
        self._note_strings()
        return proposal

    def commit(self, tokens: Sequence[int]) -> None:
        """Pass on to the translator what the target committed."""
        super().commit(tokens)
        self._note_strings()
        self._strings_before = None

    def _note_strings(self) -> None:
        """Count the present cycle once if the translator has touched text in it."""
        if self._strings_before is not None and self._counted.string_calls != self._strings_before:
            self.generation.with_strings += 1
            self._strings_before = None
