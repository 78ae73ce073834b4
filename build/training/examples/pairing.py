"""Where a draft and a target can be compared: which ids of theirs are the same, and at which places.

With one vocabulary, all ids and all places. With two, the ids that an alignment pairs, both distributions
renormalised over them, at the places where both tokenizations of a text have a boundary.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spectool import RuntimeUnsupported
from spectool.artifacts import Tokenizer
from spectool.artifacts.formats.alignment import NONE, Alignment
from spectool.artifacts.tokenizer.same_vocabulary import require_same_vocabulary
from spectool.build.training.examples.examples import NOWHERE, Example
from spectool.build.training.examples.passages import byte_ends


@dataclass(frozen=True, slots=True)
class Pairing:
    """Ids of the draft and the ids of the target that are the same.

    Attributes:
        size: Number of pairs.
        draft: Ids of the draft, ``[size]``; None where all ids below ``size`` are themselves on both sides.
        target: Their partners, ``[size]``; None likewise.
    """

    size: int
    draft: mx.array | None = None
    target: mx.array | None = None

    @property
    def same_vocabulary(self) -> bool:
        """Whether an id is the same on both sides."""
        return self.draft is None

    def of_draft(self, logits: mx.array) -> mx.array:
        """Return the draft's log-probabilities ``[…, size]`` over the pairs, float32."""
        logits = logits[..., : self.size] if self.draft is None else logits[..., self.draft]
        return log_softmax(logits.astype(mx.float32))

    def of_target(self, logits: mx.array) -> mx.array:
        """Return the target's, in the same order."""
        logits = logits[..., : self.size] if self.target is None else logits[..., self.target]
        return log_softmax(logits.astype(mx.float32))


def same_vocabulary(draft: Tokenizer, target: Tokenizer) -> bool:
    """Say whether every token that both have has the same id."""
    try:
        require_same_vocabulary(draft.vocabulary, target.vocabulary)
    except RuntimeUnsupported:
        return False
    return True


def pairing_of(draft: Tokenizer, target: Tokenizer, alignment: Path | None) -> Pairing | None:
    """Return how two models are compared; None where only text can go from one to the other.

    Raises:
        ArtifactError: The alignment is damaged or of other tokenizers.
    """
    if same_vocabulary(draft, target):
        return Pairing(min(draft.size, target.size))
    if alignment is None:
        return None
    opened = Alignment(alignment)
    opened.require(draft, target)
    partner = np.array(opened.draft.partner)
    partner[list(draft.specials)] = NONE
    shared = np.flatnonzero(partner != NONE)
    return Pairing(len(shared), mx.array(shared.astype(np.int32)), mx.array(partner[shared]))


def row_of(tokenizer: Tokenizer, ids: list[int]) -> NDArray[np.int32]:
    """Return a text's ids with the token that begins a text, where the model has one."""
    begin = [] if tokenizer.roles.bos is None else [tokenizer.roles.bos]
    return np.array([*begin, *ids], dtype=np.int32)


def plain_example(tokenizer: Tokenizer, text: str, most: int) -> Example | None:
    """Return a row of the draft alone, all of it counted; None where it is too short."""
    draft = row_of(tokenizer, tokenizer.encode(text)[:most])
    if len(draft) < 2:
        return None
    places = len(draft) - 1
    return Example(draft, np.ones(places, bool), np.empty(0, np.int32), np.full(places, NOWHERE, np.int32))


def paired_example(draft: Tokenizer, target: Tokenizer, same: bool, text: str, most: int) -> Example | None:
    """Return a row with the target's side of it.

    Args:
        draft: The draft's tokenizer.
        target: The target's.
        same: Whether they share their ids.
        text: The text.
        most: Tokens of the draft to take.

    Returns:
        None where the row is too short, or one of the tokenizers cannot spell the text.
    """
    if same:
        row = row_of(target, target.encode(text)[:most])
        places = np.arange(len(row) - 1, dtype=np.int32)
        return Example(row, np.ones(len(places), bool), row, places) if len(row) > 1 else None
    sides = [(tokenizer, tokenizer.encode(text)) for tokenizer in (draft, target)]
    if any(tokenizer.bytes_of(ids) != text.encode() for tokenizer, ids in sides):
        return None
    (_, draft_ids), (_, target_ids) = sides
    row, other = row_of(draft, draft_ids[:most]), row_of(target, target_ids)
    if len(row) < 2:
        return None
    there = {end: place for place, end in enumerate(_ends(target, target_ids, len(other)))}
    at = [there.get(end, NOWHERE) for end in _ends(draft, draft_ids[:most], len(row))[:-1]]
    return Example(row, np.ones(len(at), bool), other, np.array(at, dtype=np.int32))


def _ends(tokenizer: Tokenizer, ids: list[int], places: int) -> list[int]:
    """Return the bytes of text before each place of a row's predictions."""
    ends: list[int] = byte_ends(tokenizer, ids).tolist()
    return [0] * (places - len(ids)) + ends


def log_probabilities_of_target(target: Any, pairing: Pairing, ids: mx.array, rows: mx.array, at: mx.array) -> mx.array:
    """Return the target's log-probabilities at places, ``[places, size]``; no gradient goes there."""
    return mx.stop_gradient(pairing.of_target(target(ids)[rows, at]))


def log_softmax(logits: mx.array) -> mx.array:
    """Return the logarithm of the softmax over the last axis."""
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)
