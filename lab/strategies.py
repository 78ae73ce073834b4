"""The published strategies for translating drafts between tokenizers.

They are baselines, with their faults. ``naive`` and ``context`` decode text as the backend decodes it: some decoders
drop a leading space, half a character becomes U+FFFD. It is encoded without what stands before it.

    none          ids as they are, both ways
    naive         draft ids -> text -> target ids; committed ids -> text -> draft ids, each by itself
    context       the same, but encoded after the text of the last p context tokens: drafts, and what is committed
    intersection  token for token: draft ids that the target lacks are not to be drafted

Source: cross-family speculative decoding for Polish on Apple Silicon, sections 2.2 (algorithm 1, SLEM; token-level
intersection, after Timor et al. 2025 and Mamou et al. 2024), 3.2.1, 3.2.2 and 3.3 (algorithm 2), 6.4 (windows in both
directions, absorption by the window).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.alignment import NONE, Alignment
from spectool.lab.spellings import spellings
from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator, FirstTokenRule
from spectool.tokenization.tokenizer import Tokenizer

STRATEGIES = ("none", "naive", "context", "intersection", "byte-aligned")
MOST_IDS_A_DRAFT_TOKEN = 16  # so that a translated proposal is never cut
NEAR = 5
"""Context tokens before the draft in the published runs (p), and before what is committed."""


class AppendingTranslator:
    """A published strategy in place of a `ByteAlignedTranslator`.

    The draft's context grows at its end, and no first token is healed.
    """

    name: str
    string_calls = 0

    def __init__(self) -> None:
        self._ids: list[int] = []

    def start(self) -> None:
        """Begin a text."""
        self._ids, self.string_calls = [], 0

    def draft_context(self) -> Sequence[int]:
        """What was committed in draft ids, canonical only by luck."""
        return self._ids

    def unchanged(self) -> int:
        """Nothing is known of the ids to have stayed."""
        return 0

    def constraint(self) -> FirstTokenRule:
        """No constraint."""
        return FirstTokenRule()

    def is_settled(self, tokens: Sequence[int]) -> bool:
        """Always, because the published strategies propose what they have."""
        return True

    def translate(self, drafts: Sequence[int], healed: bool = False) -> list[int]:
        """The target ids of draft ids.

        Raises:
            ValueError: The draft replaces the last context token, which no constraint here offers.
        """
        if healed:
            raise ValueError(f"strategy {self.name!r}: got a healed draft, its constraint offers no extensions")
        return self._translated(drafts)

    def probabilities(
        self, drafts: Sequence[int], healed: bool, likely: Sequence[float], tokens: Sequence[int]
    ) -> list[float]:
        """As for `ByteAlignedTranslator`; a draft's target ids are equally probable, because their bytes may differ."""
        return [math.exp(likely[-1] / len(tokens))] * len(tokens)

    def _translated(self, drafts: Sequence[int]) -> list[int]:
        raise NotImplementedError


class PassThrough(AppendingTranslator):
    """``none``: the same numbers on both sides; right only where the vocabularies agree."""

    name = "none"

    def __init__(self, draft: Tokenizer, target: Tokenizer) -> None:
        """Pass ids between ``draft`` and ``target``; only their sizes matter."""
        super().__init__()
        self._draft_size, self._target_size = draft.size, target.size

    def commit(self, tokens: Sequence[int]) -> None:
        """Take over the target's ids; those that the draft does not have are left out."""
        self._ids += [token for token in tokens if token < self._draft_size]

    def _translated(self, drafts: Sequence[int]) -> list[int]:
        """The draft ids up to the first one that the target does not have."""
        end = next((place for place, token in enumerate(drafts) if token >= self._target_size), len(drafts))
        return list(drafts[:end])


class NaiveTranslator(AppendingTranslator):
    """``naive``: string-level round trips without any context (SLEM, algorithm 1)."""

    name = "naive"

    def __init__(self, draft: Tokenizer, target: Tokenizer) -> None:
        """Translate between ``draft`` and ``target`` with their own decoders and encoders."""
        super().__init__()
        self._draft, self._target = draft, target

    def commit(self, tokens: Sequence[int]) -> None:
        """Append the tokens of this cycle, translated back by themselves (algorithm 1, lines 7 and 8)."""
        self._ids += self._encode(self._draft, self._decode(self._target, tokens))

    def _translated(self, drafts: Sequence[int]) -> list[int]:
        """What the target encodes for the draft's text alone (algorithm 1, lines 3 and 4)."""
        return self._encode(self._target, self._decode(self._draft, drafts))

    def _decode(self, tokenizer: Tokenizer, ids: Sequence[int]) -> str:
        self.string_calls += 1
        text: str = tokenizer.backend.decode(ids, skip_special_tokens=True)
        return text

    def _encode(self, tokenizer: Tokenizer, text: str) -> list[int]:
        self.string_calls += 1
        return tokenizer.encode(text)


class ContextTranslator(NaiveTranslator):
    """``context``: as `NaiveTranslator`, but through windows of context (algorithm 2; section 6.4 for the way back).

    Where the target merges the draft's first characters into the window's last token, they are stripped with it
    (section 6.4). On the way back the window is encoded again together with what was committed, so nothing is lost.
    The third remedy of that section, which feeds the merged window to the target again, is not offered: it would change
    committed tokens.
    """

    name = "context"

    def __init__(self, draft: Tokenizer, target: Tokenizer, window: int = NEAR, window_back: int = NEAR) -> None:
        """Translate between ``draft`` and ``target``.

        Args:
            draft: Tokenizer of the draft model.
            target: Tokenizer of the target model.
            window: Context tokens decoded before the draft (p), at least 1.
            window_back: Context tokens encoded again with what is committed; 0 for none, as in algorithm 2.

        Raises:
            ValueError: The first window is empty, which is `NaiveTranslator`, or the second negative.
        """
        if window < 1:
            raise ValueError(f"window: expected at least 1 context token, got {window}; use NaiveTranslator for 0")
        if window_back < 0:
            raise ValueError(f"window_back: expected 0 context tokens or more, got {window_back}")
        super().__init__(draft, target)
        self._window, self._window_back = window, window_back

    def commit(self, tokens: Sequence[int]) -> None:
        """Encode the last context tokens together with the committed ones, and replace them."""
        if not self._window_back or not tokens:
            super().commit(tokens)
            return
        begin = max(0, len(self._ids) - self._window_back)
        before = self._decode(self._draft, self._ids[begin:])
        self._ids[begin:] = self._encode(self._draft, before + self._decode(self._target, tokens))

    def _translated(self, drafts: Sequence[int]) -> list[int]:
        """Encode window and draft together, and strip as many ids as the window has (lines 3 to 7)."""
        before = self._decode(self._draft, self._ids[-self._window :])
        together = self._encode(self._target, before + self._decode(self._draft, drafts))
        return together[len(self._encode(self._target, before)) :]


class IntersectionTranslator(AppendingTranslator):
    """``intersection``: token for token, in both directions, by the tables of an alignment.

    The draft's context is spelled target token by target token. Nothing is merged across their boundaries, so it is
    canonical only where both vocabularies cut alike. The space that some targets put before a text is spelled too.

    Attributes:
        within: The draft ids that have a counterpart, bool [draft ids]; the source is to draft no others.
    """

    name = "intersection"

    def __init__(
        self,
        draft_to_target: NDArray[np.int32],
        target_to_draft: NDArray[np.int32],
        spell: Callable[[int], Sequence[int]],
    ) -> None:
        """Translate by tables.

        Args:
            draft_to_target: Target id of each draft id, -1 where none; shape ``[draft ids]``.
            target_to_draft: Draft id of each target id, -1 where none; shape ``[target ids]``.
            spell: Draft ids for the bytes of a target id that has no counterpart; none for a special token.
        """
        super().__init__()
        self._draft_to_target, self._target_to_draft = draft_to_target, target_to_draft
        self._spell = spell
        self.within = draft_to_target != NONE

    def commit(self, tokens: Sequence[int]) -> None:
        """Append each token's counterpart, or its spelling; ids that the tokenizer does not have spell nothing."""
        known = [token for token in tokens if token < len(self._target_to_draft)]
        for token, counterpart in zip(known, self._target_to_draft[known].tolist(), strict=True):
            self._ids += self._spell(token) if counterpart == NONE else (counterpart,)

    def _translated(self, drafts: Sequence[int]) -> list[int]:
        """The counterparts of the draft ids up to the first that has none."""
        counterparts: list[int] = self._draft_to_target[np.asarray(drafts, dtype=np.intp)].tolist()
        return counterparts[: counterparts.index(NONE)] if NONE in counterparts else counterparts


def make_translator(strategy: str, alignment: Alignment, draft: Tokenizer, target: Tokenizer, **windows: int) -> Any:
    """The translator of a strategy, one of `STRATEGIES`; ``windows`` are those of `ContextTranslator`.

    It is a `ByteAlignedTranslator`, or an `AppendingTranslator` in its place.

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
            return ContextTranslator(draft, target, **windows)
        case "intersection":
            spell = spellings(target, draft).__getitem__
            return IntersectionTranslator(alignment.draft.counterpart, alignment.target.counterpart, spell)
        case "byte-aligned":
            return ByteAlignedTranslator(alignment, draft, target)
    raise ValueError(f"strategy: expected one of {', '.join(STRATEGIES)}, got {strategy!r}")
