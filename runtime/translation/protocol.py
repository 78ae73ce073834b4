"""What passes between a translator and the source of drafts in the draft's vocabulary, and the interface of the latter.

One generation is ``start()`` and then, cycle after cycle, ``commit(target ids)``, ``draft_context()``, ``constraint()``
and ``translate(draft ids)`` of a `ByteAlignedTranslator`, which owns the draft's view of the committed text and never
changes what the target committed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from spectool.runtime.caches.text_cache import TextCache

_Ids = NDArray[np.int32]
Allows = Callable[[int, bool], bool]
FURTHER = 2  # draft tokens, beyond those asked for, that may settle the last target id
NO_IDS: _Ids = np.zeros(0, dtype=np.int32)


def allow_any(token: int, healed: bool) -> bool:
    """Accept every first draft token."""
    return True


class DraftContext(NamedTuple):
    """The committed text in the draft's vocabulary."""

    ids: Sequence[int]  # owned by the translator: read them before the next ``commit`` and never change them
    kept: int  # leading ids that are the same as in the previous call of ``draft_context``


@dataclass(frozen=True, slots=True)
class Constraint:
    """What a draft model may propose next.

    A first token is *plain* when it follows the whole context, and *healed* when it replaces the last context token. It
    then begins with that token's bytes and goes beyond them.

    Attributes:
        extensions: Draft ids that a healed first token may be; empty where there is no healing. int32.
        first: Draft ids that a plain first token may be; None for any. int32.
        allows: ``allows(token, healed)`` says whether a first token respects the boundary that the target has just set.
            It is asked about the best candidates, in order, until one passes.
    """

    extensions: _Ids = field(default_factory=lambda: NO_IDS)
    first: _Ids | None = None
    allows: Allows = allow_any


class Scorer(Protocol):
    """A draft model that is asked what follows the context and some more ids, a *path*.

    Where there is healing, paths begin before the last id of the context, otherwise after it.
    """

    def begin(self, ids: Sequence[int], kept: int, healing: bool) -> tuple[int, ...] | None:
        """Read a `DraftContext`; return the path to its end (one id with healing), or None for an empty context."""

    def best(self, path: tuple[int, ...], among: _Ids | None = None) -> tuple[_Ids, NDArray[np.float64]]:
        """The most probable of all draft ids, or of ``among``, and their logits up to a constant."""

    def score(self, path: tuple[int, ...], token: int) -> float:
        """The logit of one id, up to the same constant."""


class DraftSource:
    """A model over draft ids: an n-gram model, a neural one, or any other.

    Attributes:
        costs_a_pass: Whether each draft token costs a forward pass.
        cache: Of a neural model; None where there is none.
        min_probability: Drafts end once all of them are right with less than this, 0..1.
    """

    costs_a_pass: bool = False
    cache: "TextCache | None" = None
    min_probability: float = 0.0

    def start(self) -> None:
        """Begin a text; forget any earlier one."""

    def scorer(self) -> Scorer | None:
        """What says how likely draft ids are, so that tokens can be drawn; None where it does not."""
        return None

    def draft(self, context: DraftContext, constraint: Constraint, limit: int) -> tuple[list[int], bool]:
        """At most ``limit`` draft ids after a context, and whether the first one is healed.

        Greedy: the first is the best that ``constraint`` lets pass, none where it refuses them. Healed ones go by
        p(extension | all but the last context token), plain ones by p(last context token | the same) * p(token |
        context), and win a tie.
        """
        raise NotImplementedError

    @property
    def likelihood(self) -> float:
        """Probability that all of the latest draft is right, as far as the source can say."""
        return 1.0

    def more(self) -> list[int]:
        """The draft id after those that `draft` has just returned; empty where it cannot say or it does not pay."""
        return []
