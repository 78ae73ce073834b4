"""Drafts from the vocabulary intersection only: translation is one gather, and no string is touched.

Source: token-level intersection (TLI), Timor et al. 2025 and Mamou et al. 2024, as described in
cross-family speculative decoding for Polish on Apple Silicon, sections 2.2 and 3.2.2.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.alignment import NONE
from spectool.runtime.translation.protocol import Constraint
from spectool.runtime.translation.strings import AppendingTranslator

if TYPE_CHECKING:
    from spectool.runtime.translation.token_rows import TokenRows


class IntersectionTranslator(AppendingTranslator):
    """``intersection``: token for token, in both directions.

    The draft's context is spelled target token by target token. Nothing is merged across their boundaries, so it is
    canonical only where both vocabularies cut alike. The space that some targets put before a text is spelled too.
    """

    name = "intersection"

    def __init__(
        self,
        draft_to_target: NDArray[np.int32],
        target_to_draft: NDArray[np.int32],
        spell: Callable[[int], Sequence[int]],
    ) -> None:
        """Translate by the tables of an alignment.

        Args:
            draft_to_target: Target id of each draft id, -1 where none; shape ``[draft ids]``.
            target_to_draft: Draft id of each target id, -1 where none; shape ``[target ids]``.
            spell: Draft ids for the bytes of a target id that has no counterpart; none for a special token.
        """
        super().__init__()
        self._draft_to_target, self._target_to_draft = draft_to_target, target_to_draft
        self._spell = spell
        self._constraint = Constraint(within=draft_to_target != NONE)

    def commit(self, tokens: Sequence[int]) -> None:
        """Append each token's counterpart, or its spelling; ids that the tokenizer does not have spell nothing."""
        known = [token for token in tokens if token < len(self._target_to_draft)]
        for token, counterpart in zip(known, self._target_to_draft[known].tolist(), strict=True):
            self._ids += self._spell(token) if counterpart == NONE else (counterpart,)

    def constraint(self) -> Constraint:
        """The mask of draft ids that have a counterpart."""
        return self._constraint

    def token_rows(self) -> "TokenRows":
        """The counterparts, and nothing for other tokens."""
        from spectool.runtime.translation.token_rows import counterpart_rows

        return counterpart_rows(self._draft_to_target)

    def _translated(self, drafts: Sequence[int]) -> list[int]:
        """The counterpart of every draft id.

        Raises:
            ValueError: A draft id has none, against the constraint.
        """
        counterparts: list[int] = self._draft_to_target[np.asarray(drafts, dtype=np.intp)].tolist()
        if NONE in counterparts:
            wrong = drafts[counterparts.index(NONE)]
            raise ValueError(
                f"strategy 'intersection': draft id {wrong} has no counterpart; draft within the constraint"
            )
        return counterparts
