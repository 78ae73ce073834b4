"""What two tokenizers say of a draft, on text of one language; no model is asked."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from spectool import CorpusError
from spectool.artifacts.alignment import Alignment
from spectool.build.alignment.intersection import coverage, intersect, occurrences
from spectool.build.alignment.stage import passing_alignment
from spectool.measure.advise.expect import Figure, computed, measured, unknown
from spectool.measure.ceiling import measure_ceiling
from spectool.measure.emulate.replay import encode_text
from spectool.runtime.loading import DEFAULT_STRATEGY
from spectool.tokenization.same_vocabulary import has_same_vocabulary
from spectool.tokenization.tokenizer import Tokenizer

_CEILING_SAMPLE = 15_000  # characters


@dataclass(frozen=True)
class Pair:
    """Two tokenizers.

    Its ceiling is, by strategy and draft tokens a cycle, the tokens per pass of a perfect draft; empty where no text
    could be replayed.
    """

    same: bool  # whether the vocabularies are one, so that nothing is translated
    fertility: Figure  # draft tokens of a word
    by_vocabulary: Figure  # share of the draft's ids with a counterpart of the same bytes
    by_occurrence: Figure  # share of the text's draft tokens that have one
    string_free: Figure  # share of cycles that translate without strings
    ceiling: dict[str, dict[int, float]]

    def perfect(self, k: int) -> float | None:
        """Return the tokens per pass of a perfect draft, the best translation given; None where it is not known."""
        return k + 1.0 if self.same else self.ceiling.get(DEFAULT_STRATEGY, {}).get(k)


def sample(texts: Iterable[str], characters: int) -> list[str]:
    """Return texts up to a number of characters, the last one cut.

    Raises:
        CorpusError: There is no word in them.
    """
    kept: list[str] = []
    for text in texts:
        if characters <= 0:
            break
        kept.append(text[:characters])
        characters -= len(text)
    if not any(text.split() for text in kept):
        raise CorpusError("expected text to measure on, got not one word. Name other text with --corpus")
    return kept


def fertility(tokenizer: Tokenizer, texts: Sequence[str]) -> Figure:
    """Return the tokens of a word between white space."""
    return measured(encode_text(tokenizer, texts).fertility, "tokens of the text / words")


def compare(
    draft: Tokenizer, target: Tokenizer, texts: Sequence[str], lengths: Sequence[int], alignment: Alignment | None
) -> Pair:
    """Compare two tokenizers on text, by draft tokens a cycle; without an alignment, one is made for the moment."""
    same, counterparts = has_same_vocabulary(draft.vocabulary, target.vocabulary), intersect(draft, target)
    shared = coverage(draft, counterparts, occurrences(draft.encode_batch(texts), draft.size))
    string_free = computed(1.0, "nothing is translated") if same else unknown("`spectool align` counts it")
    ceiling: dict[str, dict[int, float]] = {}
    if not same:
        with nullcontext(alignment) if alignment else passing_alignment(draft, target) as opened:
            reached = measure_ceiling(opened, draft, target, texts, lengths, _CEILING_SAMPLE)["ceiling"]
        ceiling = {name: {int(k): value for k, value in found.items() if value} for name, found in reached.items()}
        rate = None if alignment is None else alignment.manifest.statistics["draft_to_target"]["string_free"]
        if alignment is not None and rate is not None:
            string_free = measured(rate, f"in {alignment.path}, on {alignment.manifest.inputs['corpus']}")
    return Pair(
        same,
        fertility(draft, texts),
        measured(shared.by_vocabulary, "ids with the same bytes / ids"),
        measured(shared.by_occurrence, "such tokens of the text / tokens"),
        string_free,
        ceiling if ceiling.get(DEFAULT_STRATEGY) else {},
    )
