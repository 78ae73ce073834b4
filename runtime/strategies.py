"""Translation strategies by name, and their comparison on one text with one draft."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spectool.artifacts.alignment import Alignment
from spectool.artifacts.tokenizer import Tokenizer
from spectool.runtime.anchored_translator import AnchoredTranslator
from spectool.runtime.emulator import replay
from spectool.runtime.intersection_translator import IntersectionTranslator
from spectool.runtime.statistics import DraftStatistics
from spectool.runtime.string_translators import ContextTranslator, NaiveTranslator, PassThrough
from spectool.runtime.translated_drafter import TranslatedDrafter, TranslationCounts
from spectool.runtime.translation import DraftSource, Translator

STRATEGIES = ("none", "naive", "context", "intersection", "anchored")
_MOST_IDS_A_DRAFT_TOKEN = 16  # so that a translated proposal is never cut


@dataclass(frozen=True, slots=True)
class StrategyRun:
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


def make_translator(strategy: str, alignment: Alignment, draft: Tokenizer, target: Tokenizer) -> Translator:
    """Make the translator of a strategy (one of `STRATEGIES`).

    Raises:
        FingerprintMismatch: The alignment is for other tokenizers, or for the other direction.
    """
    alignment.require(draft, target)
    match strategy:
        case "none":
            return PassThrough(draft, target)
        case "naive":
            return NaiveTranslator(draft, target)
        case "context":
            return ContextTranslator(draft, target)
        case "intersection":
            spell = alignment.target.spellings.inside.__getitem__
            return IntersectionTranslator(alignment.draft.partner, alignment.target.partner, spell)
        case "anchored":
            return AnchoredTranslator(alignment, draft, target)
    raise ValueError(f"strategy: expected one of {', '.join(STRATEGIES)}, got {strategy!r}")


def anchored_steps(alignment: Alignment, draft: Tokenizer, target: Tokenizer) -> dict[str, Translator]:
    """Make the anchored strategy step by step, each added to the one before (design, section 5)."""
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
    on_document: Callable[[int], object] = lambda tokens: None,
) -> Iterator[StrategyRun]:
    """Replay documents with every translator and draft length, one after the other.

    Args:
        documents: Canonical target ids of each.
        translators: By the name to show.
        source: Drafts; the same one for all.
        lengths: Draft tokens a cycle.
        on_document: Called after each document with its number of tokens.
    """
    for length in lengths:
        for name, translator in translators.items():
            drafter = TranslatedDrafter(source, translator, length, name=name)
            statistics = replay(documents, drafter, length * _MOST_IDS_A_DRAFT_TOKEN, on_document)
            yield StrategyRun(name, length, statistics, drafter.total)
