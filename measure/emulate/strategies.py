"""Translation strategies compared on one text with one draft, and what translating costs, counted from outside."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from spectool.artifacts.alignment import Alignment
from spectool.measure.emulate.replay import replay
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.translation.anchored import AnchoredTranslator
from spectool.runtime.translation.protocol import Constraint, DraftContext, DraftSource, Translator, allow_any
from spectool.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    from spectool.runtime.translation.token_rows import TokenRows

Result = TypeVar("Result")
_MOST_IDS_A_DRAFT_TOKEN = 16  # so that a translated proposal is never cut


@dataclass(slots=True)
class TranslationCounts:
    """What translating cost. Mutable: the translator adds to it cycle by cycle.

    A cycle is a draft context that was asked for and what follows, the commit included. A prompt is no part of any.
    """

    cycles: int = 0  # cycles so far
    with_proposal: int = 0  # those whose draft became target tokens
    with_strings: int = 0  # those in which text was decoded or encoded
    drafted: int = 0  # draft tokens that were translated
    translated: int = 0  # target tokens that these became
    nanoseconds: int = 0  # time in the translator: resync, constraint, boundary checks, translation

    @property
    def without_proposal(self) -> float:
        """Cycles that ended without a proposal / cycles; 0.0 before the first."""
        return 1 - self.with_proposal / self.cycles if self.cycles else 0.0

    @property
    def string_free(self) -> float:
        """Cycles without string work / cycles; 0.0 before the first."""
        return 1 - self.with_strings / self.cycles if self.cycles else 0.0

    @property
    def microseconds_per_cycle(self) -> float:
        """Time in the translator / cycles, in microseconds; 0.0 before the first."""
        return self.nanoseconds / self.cycles / 1000 if self.cycles else 0.0


class CountedTranslator:
    """A `Translator` that does what another one does, and counts; ``counts`` are of all texts so far."""

    def __init__(self, translator: Translator) -> None:
        """Count what ``translator`` does."""
        self.name, self.counts = translator.name, TranslationCounts()
        self._inner = translator
        self._in_cycle = self._touched_text = False

    @property
    def string_calls(self) -> int:
        """How often text was decoded or encoded since ``start``."""
        return self._inner.string_calls

    def start(self) -> None:
        """Begin a text."""
        self._in_cycle = False
        self._inner.start()

    def commit(self, tokens: Sequence[int]) -> None:
        """Pass on what was committed; ends a cycle, if one has begun."""
        if self._in_cycle:
            self._counted(self._inner.commit, tokens)
        else:
            self._inner.commit(tokens)
        self._in_cycle = False

    def draft_context(self) -> DraftContext:
        """Begin a cycle."""
        self.counts.cycles += 1
        self._in_cycle, self._touched_text = True, False
        return self._counted(self._inner.draft_context)

    def constraint(self) -> Constraint:
        """Return the other one's constraint, its questions counted, too."""
        constraint = self._counted(self._inner.constraint)
        if constraint.allows is allow_any:
            return constraint
        return replace(constraint, allows=partial(self._counted, constraint.allows))

    def token_rows(self) -> "TokenRows | None":
        """Return the other one's; what it spells is not counted."""
        return self._inner.token_rows()

    def translate(self, drafts: Sequence[int], healed: bool = False) -> list[int]:
        """Translate as the other one does."""
        tokens = self._counted(self._inner.translate, drafts, healed)
        self.counts.drafted += len(drafts)
        self.counts.translated += len(tokens)
        self.counts.with_proposal += bool(tokens)
        return tokens

    def _counted(self, call: Callable[..., Result], *arguments: Any) -> Result:
        before, begun = self._inner.string_calls, perf_counter_ns()
        try:
            return call(*arguments)
        finally:
            self.counts.nanoseconds += perf_counter_ns() - begun
            if not self._touched_text and self._inner.string_calls != before:
                self._touched_text = True
                self.counts.with_strings += 1


class StrategyRun(NamedTuple):
    """What one strategy did with one draft length."""

    strategy: str  # its name
    num_draft_tokens: int  # draft tokens a cycle (k)
    statistics: DraftStatistics  # passes, tokens, acceptance
    counts: TranslationCounts  # what translating cost


def anchored_steps(alignment: Alignment, draft: Tokenizer, target: Tokenizer) -> dict[str, Translator]:
    """Make the anchored strategy step by step, each added to the one before (docs/design.md: translation)."""
    return {
        "forward only": AnchoredTranslator(alignment, draft, target, resync=False, heal=False, head=False),
        "+ resync": AnchoredTranslator(alignment, draft, target, heal=False, head=False),
        "+ healing": AnchoredTranslator(alignment, draft, target, head=False),
        "+ head absorption": AnchoredTranslator(alignment, draft, target),
    }


def compare_strategies(
    documents: Sequence[Sequence[int]],
    translators: Mapping[str, Translator],
    source: DraftSource,
    lengths: Sequence[int],
    progress: Callable[[int], object] = lambda tokens: None,
    begun: Callable[[StrategyRun], object] = lambda run: None,
) -> Iterator[StrategyRun]:
    """Replay documents with every translator and draft length, one after the other.

    Args:
        documents: Canonical target ids of each.
        translators: By the name to show.
        source: Drafts; the same one for all.
        lengths: Draft tokens a cycle.
        progress: Called after each cycle with the tokens that it committed.
        begun: Called with each run when it begins; its counts grow while it goes on.
    """
    for length in lengths:
        for name, translator in translators.items():
            counted = CountedTranslator(translator)
            drafter = TranslatedDrafter(source, counted, length, name=name)
            run = StrategyRun(name, length, DraftStatistics(), counted.counts)
            begun(run)
            replay(documents, drafter, length * _MOST_IDS_A_DRAFT_TOKEN, progress, statistics=run.statistics)
            yield run
