"""The translation ceiling: tokens per pass that each strategy reaches with a perfect draft.

A perfect draft knows the text. What it loses, it loses to translation alone, so the ceiling tells
what a pair of tokenizers allows before anybody has downloaded a draft model. This is the slow,
readable definition: whole strings, plain encode and decode, no tables.

    text        п е р с о н а л ь н и й   к о м п
    target      [     ][   ][     |             frontier n: bytes that the target has committed
    draft         [      ][        ][  ][  ]
                               |    1   2       a draft of k = 2: from n to the end of the second token

One cycle at frontier n drafts the text from n to the end of the k-th draft token. Tokens are those of the draft's
canonical tokenization of the whole text. The token that straddles n counts as the first, and the end is cut back to a
whole character. The cycle commits the accepted tokens and one more.

Source: docs/design.md; the published strategies after cross-family speculative decoding
for Polish on Apple Silicon, algorithms 1 and 2.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from spectool.tests.runtime.translation.translation_twin import encode_inside
from spectool.tokenization.tokenizer import Tokenizer

STRATEGIES = ("none", "naive", "context", "intersection", "byte-aligned")
WINDOW = 5  # draft tokens before the draft in the published strategy `context`

# Draft tokens beyond the k-th that a restarted draft may look at, so that its k-th is not cut short.
_LOOK_AHEAD = 4


@dataclass(frozen=True, slots=True)
class _Spelling:
    """A text in the ids of one tokenizer.

    Attributes:
        ids: Token ids.
        cuts: Bytes of all tokens before each token, and of all: ``[len(ids) + 1]``. Counts the
            space that some tokenizers put before a text.
        artificial: That space's length, 0 or 1.
    """

    ids: Sequence[int]
    cuts: Sequence[int]
    artificial: int

    def byte(self, token: int) -> int:
        """Return where a token begins in the text, in bytes."""
        return max(0, self.cuts[token] - self.artificial)


@dataclass(frozen=True, slots=True)
class _Passage:
    """A piece of text that both tokenizers give back as it is: its bytes and both spellings."""

    text: bytes
    target: _Spelling
    draft: _Spelling
    draft_ends: Sequence[int]


@dataclass(frozen=True, slots=True)
class _Cycle:
    """One moment of the replay.

    Attributes:
        passage: The text.
        position: Target tokens committed.
        frontier: Bytes committed.
        first: Draft token that holds the frontier, or begins there.
        end: Where the perfect draft ends, in bytes; ``frontier`` where no whole character is left.
    """

    passage: _Passage
    position: int
    frontier: int
    first: int
    end: int


_Propose = Callable[[Sequence[_Cycle], int], list[list[int]]]


def translation_ceiling(
    draft: Tokenizer,
    target: Tokenizer,
    texts: Sequence[str],
    draft_to_target: NDArray[np.int32],
    lengths: Sequence[int] = (2, 4, 8),
) -> dict[str, dict[int, float]]:
    """Replay text with a perfect draft, once for every strategy and draft length.

    Args:
        draft: Tokenizer of the draft.
        target: Tokenizer of the target.
        texts: Documents that both tokenizers give back as they are.
        draft_to_target: Target id of each draft id, -1 where none; int32, shape ``[draft ids]``.
        lengths: Draft tokens a cycle (k), each at least 1.

    Returns:
        Strategy -> draft tokens a cycle (k) -> committed target tokens / passes.
    """
    passages = _passages(draft, target, texts)
    strategies: dict[str, _Propose] = {
        "none": lambda cycles, k: [_as_they_are(cycle, k, target.size) for cycle in cycles],
        "naive": lambda cycles, k: target.encode_batch([_drafted(draft, cycle) for cycle in cycles]),
        "context": lambda cycles, k: _behind_window(draft, target, cycles),
        "intersection": lambda cycles, k: _shared_tokens(draft, cycles, k, draft_to_target),
        "byte-aligned": lambda cycles, k: _byte_aligned(target, cycles),
    }
    tokens = sum(len(passage.target.ids) for passage in passages)
    return {name: {k: tokens / _passes(passages, strategies[name], k) for k in lengths} for name in STRATEGIES}


def _passes(passages: Sequence[_Passage], propose: _Propose, k: int) -> int:
    """Count the target passes of a replay of all passages, in lock-step."""
    passes = 0
    active = [(passage, 0) for passage in passages if passage.target.ids]
    while active:
        cycles = [_cycle(passage, position, k) for passage, position in active]
        passes += len(cycles)
        after = []
        for cycle, proposal in zip(cycles, propose(cycles, k), strict=True):
            truth = cycle.passage.target.ids
            position = cycle.position + _agreeing(proposal, truth[cycle.position : cycle.position + len(proposal)]) + 1
            if position < len(truth):
                after.append((cycle.passage, position))
        active = after
    return passes


def _agreeing(proposal: Sequence[int], truth: Sequence[int]) -> int:
    for count, (guess, true) in enumerate(zip(proposal, truth, strict=False)):
        if guess != true:
            return count
    return min(len(proposal), len(truth))


def _as_they_are(cycle: _Cycle, k: int, target_size: int) -> list[int]:
    drafts = cycle.passage.draft.ids[cycle.first : cycle.first + k]
    beyond = (place for place, token in enumerate(drafts) if token >= target_size)
    return list(drafts[: next(beyond, len(drafts))])


def _behind_window(draft: Tokenizer, target: Tokenizer, cycles: Sequence[_Cycle]) -> list[list[int]]:
    windows = [_window(draft, cycle) for cycle in cycles]
    together = [window + _drafted(draft, cycle) for window, cycle in zip(windows, cycles, strict=True)]
    before = target.encode_batch(windows)
    return [ids[len(window) :] for ids, window in zip(target.encode_batch(together), before, strict=True)]


def _shared_tokens(
    draft: Tokenizer, cycles: Sequence[_Cycle], k: int, draft_to_target: NDArray[np.int32]
) -> list[list[int]]:
    """Restart the draft at the frontier; -1, where a token has no counterpart, is never accepted."""
    restarted = encode_inside(draft, [_rest(cycle, k) for cycle in cycles])
    proposals: list[list[int]] = []
    for cycle, inside in zip(cycles, restarted, strict=True):
        drafts = inside if cycle.position else cycle.passage.draft.ids
        proposals.append(draft_to_target[drafts[:k]].tolist())
    return proposals


def _byte_aligned(target: Tokenizer, cycles: Sequence[_Cycle]) -> list[list[int]]:
    """Encode the whole text up to the draft's end; where the frontier is no boundary, the draft alone."""
    proposals: list[list[int]] = []
    # Only a draft that is empty anyway ends inside a character.
    whole = target.encode_batch([cycle.passage.text[: cycle.end].decode(errors="ignore") for cycle in cycles])
    # No string begins inside a character; such a draft alone is given up.
    chunks = [cycle.passage.text[cycle.frontier : cycle.end].decode(errors="ignore") for cycle in cycles]
    alone = encode_inside(target, chunks)
    for cycle, ids, chunk, inside in zip(cycles, whole, chunks, alone, strict=True):
        if cycle.end == cycle.frontier:
            proposals.append([])
            continue
        spelling = _spelling(target, ids)
        cut = cycle.frontier + spelling.artificial if cycle.position else 0
        if cut in spelling.cuts:
            proposals.append(ids[spelling.cuts.index(cut) :])
        else:
            proposals.append(inside if len(chunk.encode()) == cycle.end - cycle.frontier else [])
    return proposals


def _cycle(passage: _Passage, position: int, k: int) -> _Cycle:
    frontier = passage.target.byte(position)
    # At the start the draft writes its artificial space as well, where that is a token of its own.
    first = bisect_right(passage.draft_ends, frontier) if position else 0
    last = min(first + k, len(passage.draft_ends)) - 1
    end = _whole_characters(passage.text, passage.draft_ends[last]) if passage.draft_ends else frontier
    return _Cycle(passage, position, frontier, first, max(frontier, end))


def _drafted(draft: Tokenizer, cycle: _Cycle) -> str:
    """Return the text of the perfect draft."""
    return _decoded(draft, cycle.passage.text[cycle.frontier : cycle.end])


def _window(draft: Tokenizer, cycle: _Cycle) -> str:
    """Return the text of the last draft tokens before the frontier; a straddling one's head counts as one."""
    spelling = cycle.passage.draft
    straddling = cycle.first < len(spelling.ids) and spelling.byte(cycle.first) < cycle.frontier
    begin = spelling.byte(max(0, cycle.first - WINDOW + straddling))
    return _decoded(draft, cycle.passage.text[begin : cycle.frontier])


def _decoded(draft: Tokenizer, data: bytes) -> str:
    """Return bytes as the published strategies see them, through the faults of the draft's decoder."""
    text = data.decode(errors="replace")
    return text[1:] if draft.leading_space and text.startswith(" ") else text


def _rest(cycle: _Cycle, k: int) -> str:
    """Return the text from the frontier on, long enough for k draft tokens; empty inside a character."""
    text, ends = cycle.passage.text, cycle.passage.draft_ends
    if _whole_characters(text, cycle.frontier) != cycle.frontier or not ends:
        return ""
    last = min(cycle.first + k + _LOOK_AHEAD, len(ends)) - 1
    return text[cycle.frontier : _whole_characters(text, ends[last])].decode(errors="ignore")


def _whole_characters(text: bytes, end: int) -> int:
    """Return the last character boundary at or before ``end``."""
    while end < len(text) and text[end] & 0xC0 == 0x80:
        end -= 1
    return end


def _passages(draft: Tokenizer, target: Tokenizer, texts: Sequence[str]) -> list[_Passage]:
    passages = []
    for text, theirs, mine in zip(texts, target.encode_batch(texts), draft.encode_batch(texts), strict=True):
        data = text.encode()
        assert target.bytes_of(theirs) == data == draft.bytes_of(mine)
        spelled = _spelling(draft, mine)
        ends = [min(len(data), spelled.byte(token + 1)) for token in range(len(mine))]
        passages.append(_Passage(data, _spelling(target, theirs), spelled, ends))
    return passages


def _spelling(tokenizer: Tokenizer, ids: Sequence[int]) -> _Spelling:
    token_bytes = [tokenizer.token_bytes[token] for token in ids]
    first = next(filter(None, token_bytes), b"")
    artificial = int(tokenizer.leading_space and first.startswith(b" "))
    return _Spelling(ids, list(accumulate(map(len, token_bytes), initial=0)), artificial)
