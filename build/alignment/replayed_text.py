"""Real text spelled token by token in the other vocabulary: merge sites and absorption.

Each document is encoded by one tokenizer; its tokens are translated by table and joined, repairs included. What is
counted: the boundaries that would have been wrong without repair, and what following text does to boundaries.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from spectool.artifacts.canonical.by_ids import CanonicalIds
from spectool.artifacts.formats.alignment import Spellings
from spectool.artifacts.proof import Engine, is_whole, respell
from spectool.artifacts.tokenizer.tokenizer import Tokenizer

WINDOW = 4  # source tokens that count as one cycle for the string-free rate
_CONTEXT = 64  # tokens before a frontier that can matter to it

Written = tuple[list[int], list[int] | None]
"""Ids of a document, and the byte at which each ends; None where they do not spell it."""


@dataclass
class Replayed:
    """Counts of one direction."""

    texts: int = 0  # documents replayed
    lossy_texts: int = 0  # documents left out, since one of the two tokenizers does not keep their bytes
    different_texts: int = 0  # documents whose ids differ from the other tokenizer's own encoding
    tokens: int = 0  # tokens of the source
    several: int = 0  # those spelled by several ids of the other side
    merge_sites: int = 0  # boundaries between two of them where the spellings side by side are not canonical
    windows: int = 0  # runs of `WINDOW` tokens
    windows_with_strings: int = 0  # those in which text had to be encoded or decoded
    ends: int = 0  # ends of source tokens; as all that follows, counted only where it is asked for
    absorbed: int = 0  # those whose last id the rest of the text merged away (tail absorption)
    frontiers: int = 0  # boundaries of ``other`` inside the documents
    refused: int = 0  # those behind which the right draft, one token long, would seem to merge (head absorption)

    def as_dict(self) -> dict[str, int | float | None]:
        """Return the counts and their ratios as JSON values; None where there was nothing to count."""
        return {
            **{name: getattr(self, name) for name in ("texts", "lossy_texts", "different_texts", "tokens")},
            "several": share(self.several, self.tokens),
            "merge_sites": share(self.merge_sites, self.tokens - self.texts),
            "string_free": share(self.windows - self.windows_with_strings, self.windows),
        }


def replay_text(
    source: Tokenizer,
    other: Tokenizer,
    engine: Engine,
    spellings: Spellings,
    documents: Iterable[tuple[bytes, Written, Written]],
    absorption: bool = False,
) -> Replayed:
    """Spell documents of ``source`` in ids of ``other``, as `respell` does, and count.

    Each document is given as bytes, and as ``source`` and as ``other`` write it. ``absorption`` is counted where it is
    asked for.
    """
    counts = Replayed()
    for data, (tokens, ends), (true_ids, true_ends) in documents:
        if ends is None or true_ends is None:
            counts.lossy_texts += 1
            continue
        counts.texts += 1
        calls = [engine.string_calls]
        tokens_at = dict(zip(true_ends, true_ids, strict=True))
        ids: list[int] = []
        for step in respell(source, other, engine, spellings, (data, tokens, ends)):
            calls.append(engine.string_calls)
            counts.tokens += 1
            counts.several += len(step.spelling) > 1
            if step.ids is None:
                continue
            ids = step.ids
            counts.merge_sites += step.repaired
            if absorption and ids:
                counts.ends += 1
                counts.absorbed += tokens_at.get(step.end) != ids[-1] and step.end < len(data)
        counts.different_texts += ids != true_ids
        windows = range(0, len(calls) - 1, WINDOW)
        counts.windows += len(windows)
        counts.windows_with_strings += sum(calls[min(i + WINDOW, len(calls) - 1)] > calls[i] for i in windows)
        if absorption and isinstance(engine, CanonicalIds):
            _count_refusals(engine, counts, data, ends, list(zip(true_ids, true_ends, strict=True)))
    return counts


def _count_refusals(
    engine: CanonicalIds, counts: Replayed, data: bytes, ends: list[int], written: list[tuple[int, int]]
) -> None:
    """Count frontiers after which the right draft, cut after one token, would seem to be absorbed."""
    ids = [token for token, _ in written]
    upcoming = 0
    for count, (_, end) in enumerate(written[:-1], 1):
        while ends[upcoming] <= end:
            upcoming += 1
        surplus = data[end : ends[upcoming]]
        if is_whole(surplus):
            counts.frontiers += 1
            context = ids[max(0, count - _CONTEXT) : count]
            counts.refused += not engine.boundary_holds(context, engine.spell(surplus))


def share(part: int, whole: int) -> float | None:
    """Return a ratio to six places, None of nothing."""
    return round(part / whole, 6) if whole > 0 else None
