"""Whether the last id of a proposal will stay, or be absorbed by what follows, as ``",`` is by a line end."""

from collections.abc import Sequence
from functools import cache

from spectool.artifacts.alignment import NONE, Alignment
from spectool.tokenization.incremental.by_ids import IncrementalBPE, IncrementalEncoder

SETTLED = 0.1  # absorption risk up to which a last id is settled
_UNKNOWN = 0.2  # risk of a token that the alignment's sample does not have, or not before line ends
_PRIOR = 1.0  # occurrences in the text that the alignment's risk counts for


class Absorption:
    """What the alignment's sample and the text so far say of target ids at the end of a proposal."""

    def __init__(self, alignment: Alignment, encoder: IncrementalEncoder) -> None:
        """Judge target ids of an ``alignment``, which ``encoder`` joins."""
        self._draft, self._target, self._encoder = alignment.draft, alignment.target, encoder
        self._begins = cache(self._first_said)
        self._changes_at_line_end = cache(self._line_end_absorbs)
        self.start()

    def start(self) -> None:
        """Forget the text."""
        self._stood: dict[int, int] = {}  # by target id, how often the text has it
        self._absorbed: dict[int, int] = {}  # how often a longer one that a draft would have begun with it

    def count(self, tokens: Sequence[int]) -> None:
        """Count committed target ids."""
        for token in tokens:
            self._stood[token] = self._stood.get(token, 0) + 1
            if (absorbed := self._begins(token)) != NONE:
                self._absorbed[absorbed] = self._absorbed.get(absorbed, 0) + 1

    def is_likely(self, token: int) -> bool:
        """Whether a target id, the last of a proposal, is likely to be absorbed by what follows."""
        known = float(self._target.risks[token])
        if known != known or self._changes_at_line_end(token):
            known = max(_UNKNOWN, known)
        absorbed = self._absorbed.get(token, 0)
        return absorbed + _PRIOR * known > SETTLED * (absorbed + self._stood.get(token, 0) + _PRIOR)

    def _first_said(self, token: int) -> int:
        """The last target id of what the first of a target token's several draft tokens says, or `NONE`."""
        parts = self._target.spellings[token] if token < len(self._target.token_bytes) else ()
        said = self._draft.spellings[parts[0]] if len(parts) > 1 else ()
        return said[-1] if said else NONE

    def _line_end_absorbs(self, token: int) -> bool:
        """Whether a target token would become another one at the end of a line, as `",` does in many vocabularies.

        How often that happens cannot be told from the alignment's sample, which is mostly prose without line ends.
        """
        encoder = self._encoder
        return isinstance(encoder, IncrementalBPE) and not encoder.boundary_holds((token,), b"\n")
