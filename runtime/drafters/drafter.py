"""The interface of drafters, for the generation loop and for replay.

One generation is ``start(prompt)`` and then, in every cycle, ``propose(limit)`` and ``commit(tokens)``. A drafter
learns what became of its proposal only from the tokens that the target committed.
"""

from collections.abc import Generator, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from spectool import RuntimeUnsupported
from spectool.runtime.settings import MAX_DRAFT_TOKENS
from spectool.tokenization.incremental.common_prefix import common_prefix

if TYPE_CHECKING:
    import mlx.core as mx

    from spectool.runtime.caches.text_cache import TextCache
    from spectool.runtime.sampling.verification import Draw

_Result = TypeVar("_Result")
Drafting: TypeAlias = Generator["mx.array | list[mx.array]", Any, _Result]
"""Drafting step by step, so that the passes of a model serve several texts. It returns what it has drafted in the end.

    yields                        gets
    tokens, int32 [tokens]        their logits [tokens, vocabulary], from a pass of the model over its cache; lazy
    a list of arrays              nothing: they are evaluated, together with those of other texts
"""


class Proposal(NamedTuple):
    """Draft tokens for the next positions, in the target's vocabulary.

    Attributes:
        tokens: Target token ids, at most the limit asked for; empty when there is no guess.
        source: Name of the drafter that made it.
        probabilities: The drafter's estimate for each token when those before it are right; empty if it makes none.
        distribution: What the leading tokens were drawn from, float32 [drawn, target vocabulary]; None where none was
            drawn. The output relies on it, and on nothing else here: the tokens must have been drawn from it, and how
            many of them are used must be decided before they are drawn.
    """

    tokens: Sequence[int]
    source: str
    probabilities: Sequence[float] = ()
    distribution: "mx.array | None" = None

    @property
    def stated(self) -> Sequence[float]:
        """How sure the drafter is of each token: entirely, where it does not say."""
        return self.probabilities or (1.0,) * len(self.tokens)

    def cut(self, limit: int) -> "Proposal":
        """The proposal of the first ``limit`` tokens."""
        if self.distribution is None and len(self.tokens) <= limit:
            return self
        drawn = None if self.distribution is None else self.distribution[:limit]
        return Proposal(tuple(self.tokens)[:limit], self.source, tuple(self.probabilities)[:limit], drawn)


NOTHING = Proposal((), "")
"""No guess."""


def alone(drafting: Drafting[_Result], cache: "TextCache | None") -> _Result:
    """What one text drafts with a model, whose ``cache`` it does not share; None where it needs no passes."""
    found: Any = None
    while True:
        try:
            wanted = drafting.send(found)
        except StopIteration as end:
            result: _Result = end.value
            return result
        found = None
        if isinstance(wanted, list):
            import mlx.core as mx

            mx.eval(wanted)
        elif cache is not None:
            found = cache.feed(wanted)


class Drafter:
    """Guesses the target's next tokens. Subclasses have `propose` or `drafting`, and inherit what they do not need.

    They keep their own history. They may raise: the loop then switches them off with a warning and continues without
    them, so no output depends on a drafter.

    Attributes:
        name: Name in statistics.
        costs_a_pass: Whether each draft token costs a forward pass of a model.
        draws: Whether it may draw from MLX's random state, which is that of the text then.
        longest: The most tokens that it proposes where nobody fixes their number.
        cache: Cache of its draft model; None where there is none.
        honesty: The share of what its draft model says that has come true, as far as anybody has measured it.
    """

    name: str = "drafter"
    costs_a_pass: bool = False
    draws: bool = True
    longest: int = MAX_DRAFT_TOKENS
    cache: "TextCache | None" = None
    honesty: float | None = None

    @property
    def passes(self) -> int:
        """Passes that its model has made for drafts so far."""
        return 0 if self.cache is None else self.cache.passes

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.name}>"

    def known(self, prompt: Sequence[int]) -> int:
        """About how many leading tokens of a prompt its model has read already, from an earlier text."""
        return 0

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a generation after ``prompt`` (token ids), of which a model may get only the first and latest."""

    def propose(self, limit: int) -> Proposal:
        """Guess at most ``limit`` (>= 0) next tokens, without adding them to the history; by default by `drafting`."""
        return alone(self.drafting(limit), self.cache)

    def drafting(self, limit: int) -> Drafting[Proposal]:
        """`propose`, step by step, so that the passes of its model serve several texts; by default in one step."""
        return self.propose(limit)
        yield

    def commit(self, tokens: Sequence[int]) -> None:
        """Add the tokens (at least one) that the target committed in this cycle to the history."""

    def may_propose(self) -> bool:
        """Whether there may be a proposal in the next cycle; if not, its pass begins early."""
        return True

    def extend(self, tokens: Sequence[int], limit: int) -> Proposal:
        """Guess at most ``limit`` tokens after ``tokens`` of another drafter; by default none."""
        return Proposal((), self.name)

    def fork(self) -> "Drafter":
        """A drafter like this one for another text at the same time, which may share what is only read.

        By default a deep copy, so one that holds much has a `fork` of its own.
        """
        return deepcopy(self)

    def draw_with(self, draw: "Draw | None") -> None:
        """Draw drafts by ``draw`` from the next ``start`` on, if possible; None takes the most probable ones."""


class Cycle(NamedTuple):
    """One propose-verify-commit cycle, for displays and logs."""

    proposal: tuple[int, ...]  # draft tokens that were verified; empty for a plain cycle
    source: str  # name of the drafter that made them; empty for a plain cycle
    accepted: int  # leading tokens of the proposal that the target agreed with
    committed: tuple[int, ...]  # these and one of the target's own, unless one of them is a stop token
    draft_seconds: float = 0.0  # of the drafters
    pass_seconds: float = 0.0  # of the target; of a pass that began ahead, from the end of the one before it


class DrafterSet:
    """Several drafters for one target, its ``members``, at most one of which asks a model. The policy chooses.

    Attributes:
        cache: Cache of the draft model among them; None where there is none.
    """

    def __init__(self, members: Sequence[Drafter]) -> None:
        """Combine drafters.

        Raises:
            RuntimeUnsupported: There are none, or several draft models.
        """
        self.members = tuple(members)
        if not self.members or sum(drafter.costs_a_pass for drafter in self.members) > 1:
            raise RuntimeUnsupported(f"drafters: expected some, with at most one draft model, got {members!r:.100}")
        self.name = ", ".join(drafter.name for drafter in self.members)
        self.cache = next((drafter.cache for drafter in self.members if drafter.cache is not None), None)

    def __repr__(self) -> str:
        return f"<DrafterSet: {self.name}>"

    def fork(self) -> "DrafterSet":
        """Drafters like these for another text at the same time."""
        return DrafterSet([drafter.fork() for drafter in self.members])


def members_of(drafter: "Drafter | DrafterSet | None") -> tuple[Drafter, ...]:
    """The single drafters."""
    if isinstance(drafter, DrafterSet):
        return drafter.members
    return () if drafter is None else (drafter,)


accepted_length = common_prefix
"""Number of leading tokens of a draft, the first argument, that equal the target's tokens, the second."""
