"""Whether the last id of a proposal will stay, or be absorbed by what follows, as ``",`` is by a line end."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

from spectool.artifacts.alignment import NONE, Alignment
from spectool.tokenization.incremental.by_ids import IncrementalBPE, IncrementalEncoder
from spectool.tokenization.token_bytes import text_of

SETTLED = 0.1  # absorption risk up to which a last id is settled
_UNKNOWN = 0.2  # risk of a token that the alignment's sample does not have, or not before line ends
_PRIOR = 1.0  # occurrences in the text that the alignment's risk counts for


class Absorption:
    """What the alignment's sample and the text so far say of target ids at the end of a proposal."""

    def __init__(self, alignment: Alignment, draft: IncrementalEncoder, target: IncrementalEncoder) -> None:
        """Judge target ids of an ``alignment``, whose ids ``draft`` and ``target`` join."""
        self._draft, self._target, self._draft_encoder, self._encoder = alignment.draft, alignment.target, draft, target
        self._begins = cache(self._first_said)
        self._changes_at_line_end = cache(self._line_end_absorbs)
        self.start()

    def start(self) -> None:
        """Forget the text."""
        self._stood = Counter[int]()  # by target id, how often the text has it
        self._absorbed = Counter[int]()  # how often a longer one that a draft would have begun with it

    def count(self, tokens: Sequence[int]) -> None:
        """Count committed target ids."""
        self._stood.update(tokens)
        self._absorbed.update(map(self._begins, tokens))

    def is_likely(self, token: int) -> bool:
        """Whether a target id, the last of a proposal, is likely to be absorbed by what follows."""
        known = float(self._target.risks[token])
        if known != known or self._changes_at_line_end(token):
            known = max(_UNKNOWN, known)
        absorbed = self._absorbed[token]
        return absorbed + _PRIOR * known > SETTLED * (absorbed + self._stood[token] + _PRIOR)

    def _first_said(self, token: int) -> int:
        """The last target id of what the first of a target token's several draft tokens says, or `NONE`."""
        whole = text_of(self._target.token_bytes[token]) if token < len(self._target.token_bytes) else ""
        parts = self._draft_encoder.encode(whole.encode()) if whole else ()
        first = text_of(self._draft.token_bytes[parts[0]]) if len(parts) > 1 else ""
        said = self._encoder.encode(first.encode()) if first else ()
        return said[-1] if said else NONE

    def _line_end_absorbs(self, token: int) -> bool:
        """Whether a target token would become another one at the end of a line, as `",` does in many vocabularies.

        How often that happens cannot be told from the alignment's sample, which is mostly prose without line ends.
        """
        encoder = self._encoder
        return isinstance(encoder, IncrementalBPE) and not encoder.boundary_holds((token,), b"\n")
