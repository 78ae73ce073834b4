"""What stands between a drafter and the target: limits, valid ids, and a way out when it fails.

It sees the beginning and the end of everything that costs time, so it measures for the controller. The drafter is timed
from the question to the proposal, and while it takes note of what was committed. The target's pass lies in between. A
pass can begin before the token of the one before it is read. It is measured from the end of that one, whatever the
caller did meanwhile. That is the wall time of a token.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from spectool import RuntimeUnsupported
from spectool.runtime.caches.leaves import lengths
from spectool.runtime.decoding.drafter import Drafter, Proposal, accepted_length, warn_switched_off
from spectool.runtime.decoding.randomness import renew, state
from spectool.runtime.decoding.statistics import DraftStatistics, Failure

if TYPE_CHECKING:
    from spectool.runtime.decoding.rejection import Draw
    from spectool.runtime.draft_length.controller import Controller

_Result = TypeVar("_Result")
NOTHING = Proposal((), "")
MOST_AGAIN = 16  # tokens that a pass feeds again before drafts pause for one pass


class Proposer:
    """A drafter on a leash: limits, valid ids, and plain decoding once it has failed.

    Attributes:
        vocabulary: Token ids that the target has. A proposal is cut before any other: MLX would read foreign memory.
        controller: Chooses the draft length; None where it is fixed or there is no drafter.
        draw: How drafts are drawn for rejection sampling; None for exact match.
        draft_seconds: Time of the drafter in the latest cycle, in proposing and in taking note of what was committed.
        pass_seconds: Time of the target in it, from the end of the proposal to the tokens committed. A pass that had
            begun ahead counts from the end of the one before it.
    """

    def __init__(
        self,
        drafter: Drafter | None,
        count: "int | Controller",
        cache: list[Any],
        quantized_kv_start: int | None,
        draw: "Draw | None" = None,
        *,
        vocabulary: int,
        statistics: DraftStatistics | None = None,
    ) -> None:
        """Ask ``drafter`` for ``count`` tokens a cycle, or as many as a controller chooses, drawn by ``draw``.

        Fewer where ``cache`` does not allow so many. A drafter that would be asked for none is left alone. Failures are
        added to ``statistics``.
        """
        self.vocabulary = vocabulary
        self._statistics = DraftStatistics() if statistics is None else statistics
        self._random = state()  # before the drafter acts
        self.controller = None if isinstance(count, int) or drafter is None else count
        self._count = count if isinstance(count, int) else 0
        self._drafter = drafter if self._count > 0 or self.controller else None
        self._cache = cache
        self._quantized_kv_start = quantized_kv_start
        self.draw = draw
        self._chosen: int | None = None  # draft length of the next cycle, where that is settled already
        self._again = self._asked = 0
        self._proposed: Sequence[int] = ()
        self._uninformed: list[int] = []  # committed while the drafter was not asked
        self._paused = False
        self.draft_seconds = self.pass_seconds = self._pass_began = self._pass_ended = 0.0
        self._begun = False  # whether the pass of this cycle began in the cycle before it
        self._cycle_ended: float | None = None
        self._caller_seconds: float | None = None  # between the cycle before this one and this one

    def start(self, prompt: Sequence[int]) -> None:
        """Start the drafter with the prompt (token ids)."""
        if self.controller is not None:
            self.controller.begin(len(prompt))

        def begin(drafter: Drafter) -> None:
            drafter.report = self._report
            drafter.draw_with(self.draw)
            drafter.start(prompt)

        self._let(begin)

    def drafting_paused(self) -> bool:
        """Settle whether the next cycle goes without a drafter, whatever this one commits; say so."""
        if self._drafter is None:
            self._chosen = 0
        elif self._chosen is None:
            self._chosen = self.controller.choose() if self.controller else self._count
        return self._chosen <= 0

    def propose(self, left: int | None, again: int = 0, *, begun: bool = False) -> Proposal:
        """Return a proposal that can be verified safely.

        Args:
            left: At most so many tokens; None for no limit.
            again: Committed tokens that the next pass feeds once more before the last committed one.
            begun: Whether the pass of this cycle is under way already.
        """
        self._paused = self.drafting_paused()
        count, self._chosen = self._chosen or 0, None
        began = perf_counter()
        self._begun = begun
        self._caller_seconds = None if begun or self._cycle_ended is None else began - self._cycle_ended
        limit = self._limit(count, left, again)
        proposal = (self._let(partial(self._ask, limit)) if limit else None) or NOTHING
        self._asked, self._again, self._proposed = limit, again, proposal.tokens
        self._pass_began = perf_counter()
        self.draft_seconds = self._pass_began - began
        return proposal

    def _ask(self, limit: int, drafter: Drafter) -> Proposal:
        """Return what the drafter proposes, without ids that the target does not have."""
        self._inform(drafter)
        vocabulary, proposal = self.vocabulary, drafter.propose(limit)
        drawn = None if proposal.distribution is None else proposal.distribution[:limit]
        if drawn is not None and (drawn.ndim != 2 or drawn.shape[1] != vocabulary):
            raise RuntimeUnsupported(
                f"distribution of the drafts: expected shape [drafts, {vocabulary}], got {drawn.shape}"
            )
        tokens = [int(token) for token in proposal.tokens[:limit]]
        if tokens and not 0 <= min(tokens) <= max(tokens) < vocabulary:
            tokens = list(takewhile(lambda token: 0 <= token < vocabulary, tokens))
        # A drawn token that is cut leaves its row: it was drawn, and cannot be right.
        return Proposal(tokens, proposal.source, distribution=drawn) if tokens or drawn is not None else NOTHING

    def commit(self, tokens: tuple[int, ...], *, begins: bool = False) -> None:
        """Pass on to the drafter what the target committed; while it is not asked, keep that for later.

        ``begins`` says that the pass of the next cycle is under way.
        """
        pass_ended = perf_counter()
        self.pass_seconds = pass_ended - (self._pass_ended if self._begun else self._pass_began)
        self._pass_ended = pass_ended
        if self._drafter is None:
            return
        self._uninformed += tokens
        if not self._paused:
            self._let(self._inform)
        self.draft_seconds += perf_counter() - pass_ended
        if self.controller is not None:
            self.controller.learn(
                asked=self._asked,
                proposed=len(self._proposed),
                accepted=accepted_length(self._proposed, tokens),
                committed=len(tokens),
                again=self._again,
                draft_seconds=self.draft_seconds,
                # MLX limits what is under way, so handing over a pass can last until the one before it is done.
                # Then the first of a row of passes begun ahead seems too long, and the last one too short.
                pass_seconds=self.pass_seconds if self._begun == begins else None,
                caller_seconds=self._caller_seconds,
            )
        self._cycle_ended = perf_counter()

    def _inform(self, drafter: Drafter) -> None:
        """Pass on to the drafter what was kept for later."""
        if self._uninformed:
            uninformed, self._uninformed = tuple(self._uninformed), []
            drafter.commit(uninformed)

    def _limit(self, count: int, left: int | None, again: int) -> int:
        """Return how many draft tokens the next pass may verify, of the ``count`` wanted."""
        if count <= 0:
            return 0
        limit = count if left is None else min(count, left)
        if again:
            # A pass without drafts takes all of it in, and the next one is short again.
            limit = min(limit, MOST_AGAIN - again)
        if self._quantized_kv_start is not None:
            # Plain decoding quantises the cache at this length: no pass may straddle it, and a pass
            # that reaches it must have nothing to take back.
            ahead = self._quantized_kv_start - max(lengths(self._cache), default=0)
            if ahead > 0:
                limit = min(limit, ahead - again - 2)
        return max(0, limit)

    def _let(self, act: Callable[[Drafter], _Result]) -> _Result | None:
        """Let the drafter act; None without one. One that fails is switched off: decoding goes on without it."""
        if self._drafter is None:
            return None
        self._random = state()
        try:
            return act(self._drafter)
        except Exception as error:
            self._report(self._drafter, error)
            self._drafter = None
            return None

    def _report(self, drafter: Drafter, error: Exception) -> None:
        """Count a drafter that failed, and warn. Mend the random state, which a failing sampler leaves unusable."""
        renew(self._random)  # what decides whether it fails must not decide what the target draws
        self._statistics.failures.append(Failure(drafter.name, f"{type(error).__name__}: {error}"))
        warn_switched_off(drafter, error)
