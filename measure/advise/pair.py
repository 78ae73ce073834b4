"""What two tokenizers say of a draft, on text of one language; no model is asked."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spectool import CorpusError
from spectool.artifacts.formats.alignment import Alignment
from spectool.artifacts.tokenizer.same_vocabulary import has_same_vocabulary
from spectool.artifacts.tokenizer.tokenizer import Tokenizer
from spectool.build.alignment.ceiling import translation_ceiling
from spectool.build.alignment.intersection import coverage, intersect, occurrences
from spectool.measure.advise.figures import Figure, computed, measured, unknown

STRATEGY = "anchored"  # what `generate` translates with if nothing else is said
_CEILING_SAMPLE = 15_000  # characters


@dataclass(frozen=True, slots=True)
class Pair:
    """A draft's tokenizer beside the target's.

    Attributes:
        same: Whether an id is the same on both sides, so that nothing is translated.
        fertility: Tokens of the draft for a word.
        by_vocabulary: Share of the draft's ids that the target has, too.
        by_occurrence: Share of its tokens in the text.
        string_free: Share of runs of tokens that are translated by table.
        ceiling: Strategy -> draft tokens a cycle -> tokens per pass of a perfect draft; empty where no text could
            be replayed.
    """

    same: bool
    fertility: Figure
    by_vocabulary: Figure
    by_occurrence: Figure
    string_free: Figure
    ceiling: dict[str, dict[int, float]]

    def perfect(self, k: int) -> float | None:
        """Return the tokens per pass of a perfect draft, the best translation given; None where nothing tells."""
        return k + 1.0 if self.same else self.ceiling.get(STRATEGY, {}).get(k)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value.as_dict() if isinstance(value, Figure) else value for name, value in values.items()}


def sample(texts: Iterable[str], characters: int) -> list[str]:
    """Return texts up to a number of characters, the last one cut.

    Raises:
        CorpusError: There is no word in them.
    """
    kept: list[str] = []
    left = characters
    for text in texts:
        if left <= 0:
            break
        kept.append(text[:left])
        left -= len(text)
    if not any(text.split() for text in kept):
        raise CorpusError("expected text to measure on, got not one word. Name other text with --corpus")
    return kept


def fertility(tokenizer: Tokenizer, texts: Sequence[str]) -> Figure:
    """Return the tokens of a word between white space."""
    words = sum(len(text.split()) for text in texts)
    return measured(sum(map(len, tokenizer.encode_batch(texts))) / words, "tokens of the text / words")


def compare(
    draft: Tokenizer, target: Tokenizer, texts: Sequence[str], lengths: Sequence[int], alignment: Alignment | None
) -> Pair:
    """Compare two tokenizers on text.

    Args:
        draft: The draft's.
        target: The target's.
        texts: Text of the language.
        lengths: Draft tokens a cycle.
        alignment: Of the two; tells what cannot be counted in a moment.
    """
    same, partner = has_same_vocabulary(draft.vocabulary, target.vocabulary), intersect(draft, target)
    shared = coverage(draft, partner, occurrences(draft.encode_batch(texts), draft.size))
    ceiling: dict[str, dict[int, float]] = {}
    if not same:
        found = translation_ceiling(draft, target, texts, partner, lengths, _CEILING_SAMPLE)
        ceiling = found.tokens_per_pass if found.target_tokens else {}
    return Pair(
        same,
        fertility(draft, texts),
        measured(shared.by_vocabulary, "ids with the same bytes / ids"),
        measured(shared.by_occurrence, "such tokens of the text / tokens"),
        _string_free(same, alignment),
        ceiling,
    )


def _string_free(same: bool, alignment: Alignment | None) -> Figure:
    if same:
        return computed(1.0, "nothing is translated")
    rate = None if alignment is None else alignment.manifest.statistics["draft_to_target"]["string_free"]
    if alignment is None or rate is None:
        return unknown("`spectool align` counts it")
    return measured(rate, f"in {alignment.path}, on {alignment.manifest.inputs['corpus']}")
