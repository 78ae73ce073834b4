"""The translation ceiling: tokens per pass that a draft reaches which is always right.

A perfect draft knows the text. What it loses, it loses to translation alone, so the ceiling says what a pair of
tokenizers allows before anybody has downloaded a draft model. It is replayed through the translator that generation
uses, so that no figure is given which it does not reach.

    text        п е р с о н а л ь н и й   к о м п
    target      [     ][   ][     |             frontier n: bytes that the target has committed
    draft         [      ][        ][  ][  ]
                               |    1   2       a draft of k = 2: from n to the end of the second token

A cycle at frontier n drafts the text from n to the end of the k-th draft token, as the draft's tokenizer writes it. The
token that straddles n is the first. It commits the accepted tokens and one more. A first token that the translator does
not allow is not drafted, as a real draft would not.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from spectool.artifacts.alignment import Alignment
from spectool.build.alignment.replayed_text import Reference, as_written
from spectool.runtime.decoding.drafter import accepted_length
from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator
from spectool.tokenization.incremental.by_text import TailReencoder
from spectool.tokenization.incremental.encoder import IncrementalEncoder, encoder_of
from spectool.tokenization.tokenizer import Tokenizer

LENGTHS = (2, 4, 8)
_CHARACTERS = 40_000
_PASSAGE = 500  # characters: a tokenizer that changes one of them loses a passage and no more


class Passage(NamedTuple):
    """A text that both tokenizers keep: its bytes, and ids and the byte at which each ends, of target and draft."""

    text: bytes
    target: Sequence[int]
    target_ends: Sequence[int]
    draft: Sequence[int]
    draft_ends: Sequence[int]


def measure_ceiling(
    alignment: Alignment,
    draft: Tokenizer,
    target: Tokenizer,
    texts: Iterable[str],
    lengths: Sequence[int] = LENGTHS,
) -> dict[str, Any]:
    """Replay text with a perfect draft, once for every draft length.

    Args:
        alignment: Of the two tokenizers.
        draft: Tokenizer of the draft.
        target: Tokenizer of the target.
        texts: Documents; read until the sample has 40,000 characters. Long ones are cut at white space.
        lengths: Draft tokens a cycle (k), each at least 1.

    Returns:
        ``default``, the translator's name, and ``ceiling`` -> that name -> k -> tokens per pass, None where both
        tokenizers keep no passage.
    """
    passages = list(_passages(draft, target, as_written(target, _sample(texts, _CHARACTERS))))
    perfect = _PerfectDraft(draft, encoder_of(draft, alignment.draft.by_ids))
    translator = ByteAlignedTranslator(alignment, draft, target)
    ceiling: dict[str, float | None] = {}
    for k in lengths:
        passes = tokens = 0
        for passage in passages:
            passes += _passes(passage, translator, perfect, k)
            tokens += len(passage.target)
        ceiling[str(k)] = round(tokens / passes, 4) if passes else None
    return {"ceiling": {translator.name: ceiling}, "default": translator.name}


def _passes(passage: Passage, translator: ByteAlignedTranslator, perfect: "_PerfectDraft", k: int) -> int:
    """Count the target passes of one passage with a perfect draft of ``k`` tokens."""
    translator.start()
    position = passes = 0
    while position < len(passage.target):
        drafts, healed = perfect.draft(passage, position, translator, k)
        proposal = translator.translate(drafts, healed) if drafts else []
        committed = passage.target[position : position + accepted_length(proposal, passage.target[position:]) + 1]
        translator.commit(committed)
        position += len(committed)
        passes += 1
    return passes


class _PerfectDraft:
    """A draft that knows the text."""

    def __init__(self, tokenizer: Tokenizer, encoder: IncrementalEncoder) -> None:
        """Speak ids of ``tokenizer``, which ``encoder`` joins."""
        self._token_bytes, self._encoder = tokenizer.token_bytes, encoder

    def draft(
        self, passage: Passage, position: int, translator: ByteAlignedTranslator, k: int
    ) -> tuple[list[int], bool]:
        """Return the right ``k`` tokens at most after ``position`` target tokens, and whether the first is healed."""
        text, ids, ends = passage.text, passage.draft, passage.draft_ends
        context, constraint = translator.draft_context().ids, translator.constraint()
        frontier = passage.target_ends[position - 1] if position else 0
        seen = _whole(text, frontier)
        if constraint.first is not None:  # the draft has to repeat what it has not seen of a character
            frontier = seen
        # At the start the draft writes its artificial space as well, where that is a token of its own.
        first = bisect_right(ends, frontier) if position else 0
        drafts, healed = list(ids[first : first + k]), False
        begin = ends[first - 1] if first else 0
        if drafts and position and begin < seen and context:
            surplus = len(self._token_bytes[ids[first]]) - len(self._token_bytes[context[-1]])
            healed = len(constraint.extensions) > 0 and surplus == ends[first] - seen
            if not healed:
                drafts[:1] = self._spelled(text[seen : ends[first]])
        return (drafts, healed) if drafts and constraint.allows(drafts[0], healed) else ([], False)

    def _spelled(self, data: bytes) -> list[int]:
        """Spell bytes as inside a text; nothing where they begin within a character."""
        if data[:1] and 0x80 <= data[0] < 0xC0:
            return []
        if isinstance(self._encoder, TailReencoder):
            return self._encoder.inside(data)
        return list(self._encoder.spell(data))


def _whole(text: bytes, end: int) -> int:
    """Return the last character boundary at or before ``end``."""
    while 0 < end < len(text) and 0x80 <= text[end] < 0xC0:
        end -= 1
    return end


def _sample(texts: Iterable[str], characters: int) -> Iterator[str]:
    """Yield passages of at most `_PASSAGE` characters, without white space at their ends."""
    left = characters
    for text in texts:
        while (text := text.strip()) and left > 0:
            cut = limit = min(_PASSAGE, left)
            if len(text) > limit:
                space = max(text.rfind(" ", 0, limit + 1), text.rfind("\n", 0, limit + 1))
                cut = space if space > 0 else limit
            passage, text = text[:cut].rstrip(), text[cut:]
            left -= len(passage)
            yield passage


def _passages(draft: Tokenizer, target: Tokenizer, texts: Sequence[str]) -> Iterator[Passage]:
    """Yield the texts that both tokenizers keep."""
    for text, (theirs, their_ends), (mine, my_ends) in zip(
        texts, Reference(target).read(texts), Reference(draft).read(texts), strict=True
    ):
        if their_ends is not None and my_ends is not None:
            yield Passage(text.encode(), theirs, their_ends, mine, my_ends)
