"""Translation strategies compared on one text with one draft."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from spectool.artifacts.formats.alignment import Alignment
from spectool.artifacts.tokenizer.tokenizer import Tokenizer
from spectool.measure.emulate.counted import CountedTranslator, TranslationCounts
from spectool.measure.emulate.replay import replay
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.translation.anchored import AnchoredTranslator
from spectool.runtime.translation.protocol import DraftSource, Translator

_MOST_IDS_A_DRAFT_TOKEN = 16  # so that a translated proposal is never cut


class StrategyRun(NamedTuple):
    """What one strategy did with one draft length.

    Attributes:
        strategy: Name.
        num_draft_tokens: Draft tokens a cycle (k).
        statistics: Passes, tokens, acceptance.
        counts: What translating cost.
    """

    strategy: str
    num_draft_tokens: int
    statistics: DraftStatistics
    counts: TranslationCounts


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
