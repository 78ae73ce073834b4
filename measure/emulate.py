"""What drafters would save on a text, without a target model: the text is replayed as if the target had written it.

Text that is already written is verified without running a model, so the passes are counted exactly, repeatably and
independently of hardware. A draft model of another tokenizer is replayed with several translation strategies; what
translating costs is counted around the translator.

Source: DictSpec, section 4.5 and 4.5.1 (emulated speed-up, draft coverage, mean accepted length, acceptance rate).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from spectool.artifacts.alignment import Alignment
from spectool.build.corpus_reading import encoded
from spectool.runtime.decoding.drafter import Drafter, accepted_length
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.translation.anchored import AnchoredTranslator
from spectool.runtime.translation.protocol import Constraint, DraftContext, DraftSource, Translator, allow_any
from spectool.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    from spectool.runtime.translation.token_rows import TokenRows

_Result = TypeVar("_Result")
_MOST_IDS_A_DRAFT_TOKEN = 16  # so that a translated proposal is never cut


class EncodedText(NamedTuple):
    """Documents to replay."""

    documents: list[list[int]]  # canonical target ids of each
    words: int  # white-space separated words in all of them

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return sum(map(len, self.documents))

    @property
    def fertility(self) -> float:
        """Tokens / words; 0.0 without words."""
        return self.tokens / self.words if self.words else 0.0

    def cut(self, limit: int) -> list[list[int]]:
        """The first ``limit`` tokens as documents, the last of which may be cut; all for 0."""
        over = self.tokens - limit
        if not limit or over <= 0:
            return self.documents
        return [*self.documents[:-1], self.documents[-1][:-over]]


def encode_text(tokenizer: Tokenizer, texts: Iterable[str], limit: int = 0) -> EncodedText:
    """Whole documents, encoded until there are ``limit`` tokens; all for 0."""
    documents, words, tokens = [], 0, 0
    for text, ids in encoded(tokenizer, texts):
        documents.append(ids)
        words += len(text.split())
        tokens += len(ids)
        if 0 < limit <= tokens:
            break
    return EncodedText(documents, words)


def replay(
    documents: Iterable[Sequence[int]],
    drafter: Drafter,
    num_draft_tokens: int = 8,
    progress: Callable[[int], object] = lambda tokens: None,
    prompts: Iterable[Sequence[int]] | None = None,
    statistics: DraftStatistics | None = None,
) -> DraftStatistics:
    """Statistics of a drafter on tokenized documents, as if the target had written them.

    Every cycle commits the accepted prefix of the proposal and one more token, the one that the target itself would
    add. Each document is a generation of its own. Drafters do not know where a document ends, so what they propose
    beyond its end counts as rejected.

    Args:
        documents: Canonical target ids of each document.
        drafter: Makes the proposals.
        num_draft_tokens: Maximum number of tokens of a proposal.
        progress: Called after each cycle with the number of tokens that it committed.
        prompts: Target ids before each document, which are not counted; none by default.
        statistics: Added to and returned, so that an interrupted replay leaves its counts; new by default.
    """
    statistics = DraftStatistics() if statistics is None else statistics
    for prompt, document in zip(repeat(()) if prompts is None else prompts, documents, strict=False):
        drafter.start(prompt)
        position, end = 0, len(document)
        while position < end:
            proposal = drafter.propose(num_draft_tokens)
            truth = document[position : position + len(proposal.tokens) + 1]
            accepted = accepted_length(proposal.tokens, truth)
            committed = truth[: accepted + 1]
            statistics.record(proposal.source, len(proposal.tokens), accepted, len(committed))
            drafter.commit(committed)
            position += len(committed)
            progress(len(committed))
    return statistics


@dataclass(slots=True)
class TranslationCounts:
    """What translating costs; `CountedTranslator` adds to it.

    A cycle begins when the draft context is asked for and ends with the commit. Prompts are not counted.
    """

    cycles: int = 0
    with_proposal: int = 0  # cycles whose draft became target tokens
    with_strings: int = 0  # cycles in which text was decoded or encoded
    drafted: int = 0  # draft tokens that were translated
    translated: int = 0  # target tokens that these became
    nanoseconds: int = 0  # time in the translator: resync, constraint, boundary checks, translation

    @property
    def without_proposal(self) -> float:
        """Share of cycles without a proposal; 0.0 before the first."""
        return 1 - self.with_proposal / self.cycles if self.cycles else 0.0

    @property
    def string_free(self) -> float:
        """Share of cycles without string work; 0.0 before the first."""
        return 1 - self.with_strings / self.cycles if self.cycles else 0.0

    @property
    def microseconds_per_cycle(self) -> float:
        """Time in the translator per cycle; 0.0 before the first."""
        return self.nanoseconds / self.cycles / 1000 if self.cycles else 0.0


class CountedTranslator:
    """A `Translator` that passes everything to another one and counts; ``counts`` are those of all texts so far."""

    def __init__(self, translator: Translator) -> None:
        """Count what ``translator`` does."""
        self.name, self.counts = translator.name, TranslationCounts()
        self._inner = translator
        self._in_cycle = self._touched_text = False

    @property
    def string_calls(self) -> int:
        """Number of times that text was decoded or encoded since ``start``."""
        return self._inner.string_calls

    def start(self) -> None:
        """Begin a text."""
        self._in_cycle = False
        self._inner.start()

    def commit(self, tokens: Sequence[int]) -> None:
        """Pass on committed tokens; this ends a cycle, if one has begun."""
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
        """The other translator's constraint, whose questions are counted as well."""
        constraint = self._counted(self._inner.constraint)
        if constraint.allows is allow_any:
            return constraint
        return replace(constraint, allows=partial(self._counted, constraint.allows))

    def token_rows(self) -> "TokenRows | None":
        """The other translator's speller, whose work is not counted."""
        return self._inner.token_rows()

    def translate(self, drafts: Sequence[int], healed: bool = False) -> list[int]:
        """Translate as the other translator does."""
        tokens = self._counted(self._inner.translate, drafts, healed)
        self.counts.drafted += len(drafts)
        self.counts.translated += len(tokens)
        self.counts.with_proposal += bool(tokens)
        return tokens

    def _counted(self, call: Callable[..., _Result], *arguments: Any) -> _Result:
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

    strategy: str
    num_draft_tokens: int  # draft tokens per cycle (k)
    statistics: DraftStatistics
    counts: TranslationCounts


def anchored_steps(alignment: Alignment, draft: Tokenizer, target: Tokenizer) -> dict[str, Translator]:
    """The anchored strategy built up in steps, each added to the ones before (docs/design.md: translation)."""
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
    """Replay documents with every translator and draft length, and yield each run when it ends.

    Args:
        documents: Canonical target ids of each document.
        translators: By the name to show.
        source: Makes the drafts, for all of them.
        lengths: Draft tokens per cycle.
        progress: Called after each cycle with the number of tokens that it committed.
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
