"""The loop's view of a drafter: proposals are cut to what the cache can undo, and a drafter that fails is disabled.

It also measures for the controller, since it sees where everything that costs time begins and ends. The drafter's time
is that of ``propose`` and ``commit``, and the target's pass lies in between. A pass that began before the token of the
pass before it was read is measured from the end of that pass, so that it includes what the caller did meanwhile.
"""

from collections.abc import Callable, Sequence
from itertools import takewhile
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, TypeVar

from spectool import RuntimeUnsupported
from spectool.runtime.caches.leaves import lengths
from spectool.runtime.decoding.drafter import NOTHING, Drafter, Proposal, accepted_length, warn_switched_off
from spectool.runtime.decoding.randomness import renew, state
from spectool.runtime.decoding.statistics import DraftStatistics, Failure
from spectool.runtime.draft_length.controller import MAX_PREDICTED_TOKENS, Controller
from spectool.runtime.draft_length.record import MAX_DRAFT_TOKENS

if TYPE_CHECKING:
    from spectool.runtime.decoding.prediction import PredictionDrafter
    from spectool.runtime.decoding.verification import Draw
    from spectool.runtime.grammar import GrammarConstraint

_Result = TypeVar("_Result")
MAX_REFEED = 16  # tokens that a pass feeds again before drafting pauses for one pass


class GuardedDrafter:
    """A drafter as the loop sees it, and a prediction that goes before it as long as the answer follows it.

    Attributes:
        controller: Chooses the draft length; None where it is fixed or there is no drafter.
        predicting: The same for the prediction, which is right at other times and with longer drafts.
        fixed_length: Draft tokens per cycle where no controller chooses them.
        draft_seconds: Time of the drafter in the latest cycle.
        pass_seconds: Time of the target in it.
    """

    def __init__(
        self,
        drafter: Drafter | None,
        length: int | Controller | None,
        cache: list[Any],
        quantized_kv_start: int | None,
        draw: "Draw | None" = None,
        *,
        vocabulary: int,
        statistics: DraftStatistics,
        prediction: "PredictionDrafter | None" = None,
        constraint: "GrammarConstraint | None" = None,
    ) -> None:
        """Ask ``drafter`` for proposals of ``length`` tokens, or as many as a controller chooses.

        Args:
            drafter: None decodes plainly.
            length: Draft tokens per cycle, or the controller that chooses them; None where nothing drafts. With 0,
                nothing at all is drafted.
            cache: The target's.
            quantized_kv_start: Tokens in the cache from which on it is quantised; None if it is not.
            draw: How drafts are drawn for rejection sampling; None for exact match.
            vocabulary: Number of the target's token ids. Proposals end before any other id.
            statistics: Receives the failures.
            prediction: Proposes first.
            constraint: Which tokens may follow; drafts end before any other. None for all. What it leaves no choice
                about is drafted before everything else. The draft length does not limit that, and it teaches the
                controller nothing about the drafter.
        """
        self._timed = length if isinstance(length, Controller) and (drafter or prediction) is not None else None
        self.controller = self._timed if drafter is not None else None
        self.predicting: Controller | None = None
        if self._timed is not None and prediction is not None:
            self.predicting = Controller(MAX_PREDICTED_TOKENS, self._timed.passes)
            self.predicting.processor_share = self._timed.processor_share
            if self._timed.longest < MAX_DRAFT_TOKENS:  # of longer passes the bits are known to differ
                self.predicting.longest = self._timed.longest
        self._prediction, self._by_prediction = prediction, False
        self._constraint, self._with_forced = constraint, constraint is not None and length != 0
        self.fixed_length = 0 if length is None or isinstance(length, Controller) else int(length)
        self._drafter = drafter if self.fixed_length > 0 or self.controller else None
        self._cache, self._quantized_kv_start = cache, quantized_kv_start
        self._draw, self._vocabulary = draw, vocabulary
        self._statistics = statistics
        self._random = state()  # before the drafter acts
        self._next_length: int | None = None  # draft length of the next cycle, where it is settled already
        self._paused = False  # in this cycle
        self._pending: list[int] = []  # committed tokens that the drafter has not been given yet
        self._limit = self._refeed = 0
        self._proposed: Sequence[int] = ()
        self._shared = False  # whether the pass of this cycle is shared with other texts
        self._begun = False  # whether the pass of this cycle began in the cycle before it
        self.draft_seconds = self.pass_seconds = 0.0
        self._pass_began = self._pass_ended = 0.0
        self._processor_began = self._processor_ended = 0.0  # processor time of this process at the same moments
        self._cycle_ended: float | None = None
        self._caller_seconds: float | None = None  # between the cycle before this one and this one

    @property
    def automatic(self) -> bool:
        """Whether a controller chooses the draft length."""
        return self._timed is not None

    def start(self, prompt: Sequence[int]) -> None:
        """Start the drafter with the prompt."""
        if self._timed is not None:
            self._timed.begin(len(prompt), self._drafter is not None and self._drafter.chooses_length)
        if self._prediction is not None:
            self._prediction.start(prompt)

        def start(drafter: Drafter) -> None:
            drafter.costs = self.controller
            drafter.report = self._report
            drafter.draw_with(self._draw)
            drafter.start(prompt)

        self._guarded(start)

    def drafting_paused(self) -> bool:
        """Whether the next cycle goes without drafts, which is decided here if it was not yet."""
        may_return = self._prediction is not None and self._prediction.near and (self._timed or self.fixed_length)
        return not may_return and not self._with_forced and self._drafter_paused()

    def _drafter_paused(self) -> bool:
        if self._drafter is None:
            self._next_length = 0
        elif self._next_length is None:
            self._next_length = self.controller.choose() if self.controller else self.fixed_length
        return self._next_length <= 0

    def propose(self, left: int | None, refeed: int = 0, *, begun: bool = False, shared: int | None = None) -> Proposal:
        """A proposal that can be verified safely.

        Args:
            left: Maximum number of tokens that the generation can still use; None for no limit.
            refeed: Committed tokens that the next pass feeds again before the last one.
            begun: Whether the pass of this cycle is under way already.
            shared: Maximum number of draft tokens where the pass is shared with other texts. The controller, which
                knows the passes of one text, is then neither asked nor taught.
        """
        self._shared = shared is not None
        if shared is not None:
            self._next_length = shared if self._drafter is not None else 0
        began = perf_counter()
        self._begun, self._refeed = begun, refeed
        self._caller_seconds = None if begun or self._cycle_ended is None else began - self._cycle_ended
        most = self._most_forced(left)
        forced = self._constraint.forced(most) if self._constraint is not None and most else []
        proposal = NOTHING
        if self._prediction is not None and self._prediction.found and not begun and not forced:
            if self.predicting is None:
                longest = self.fixed_length
            else:
                longest = self.predicting.choose() if shared is None else shared
            self._limit = self._limited(longest, left, refeed)
            proposal = self._valid(self._prediction.propose(self._limit))
        self._by_prediction = bool(proposal.tokens)
        self._paused = self._by_prediction or self._drafter_paused()
        if not self._by_prediction:
            self._limit, self._next_length = self._limited(self._next_length or 0, left, refeed), None
            if forced:
                proposal = self._extended(forced, most)
            else:
                proposal = (self._guarded(self._ask) if self._limit else None) or NOTHING
        self._proposed = proposal.tokens
        self._pass_began, self._processor_began = perf_counter(), process_time()
        self.draft_seconds = self._pass_began - began
        return proposal

    def commit(self, tokens: tuple[int, ...], *, begins: bool = False) -> None:
        """Give the drafter what the target committed, or keep it for later while drafting is paused.

        ``begins`` says that the pass of the next cycle is under way.
        """
        pass_ended, processor_ended = perf_counter(), process_time()
        self.pass_seconds = pass_ended - (self._pass_ended if self._begun else self._pass_began)
        processor_seconds = processor_ended - (self._processor_ended if self._begun else self._processor_began)
        self._pass_ended, self._processor_ended = pass_ended, processor_ended
        if self._prediction is not None:
            self._prediction.commit(tokens)
        elif self._drafter is None:
            return
        if self._drafter is not None:
            self._pending += tokens
            if not self._paused:
                self._guarded(self._give_pending)
        self.draft_seconds += perf_counter() - pass_ended
        learner, waited = None if self._shared else self._timed, self._caller_seconds
        if self._by_prediction and learner is not None:  # the drafter has missed these tokens
            learner.learn(committed=len(tokens), caller_seconds=waited)
            learner, waited = self.predicting, None
        if learner is not None:
            learner.learn(
                asked=self._limit,
                proposed=len(self._proposed),
                accepted=accepted_length(self._proposed, tokens),
                committed=len(tokens),
                refed=self._refeed,
                draft_seconds=self.draft_seconds,
                # MLX limits what is under way, so handing over a pass can last until the one before it is done. Then
                # the first of several passes begun ahead seems too long, and the last one too short.
                pass_seconds=self.pass_seconds if self._begun == begins else None,
                processor_seconds=processor_seconds,
                caller_seconds=waited,
            )
        self._cycle_ended = perf_counter()

    def _ask(self, drafter: Drafter) -> Proposal:
        """The drafter's proposal, without ids that the target does not have."""
        self._give_pending(drafter)
        return self._valid(drafter.propose(self._limit))

    def _valid(self, proposal: Proposal) -> Proposal:
        drawn = None if proposal.distribution is None else proposal.distribution[: self._limit]
        if drawn is not None and (drawn.ndim != 2 or drawn.shape[1] != self._vocabulary):
            raise RuntimeUnsupported(
                f"distribution of the drafts: expected shape [drafts, {self._vocabulary}], got {drawn.shape}"
            )
        proposed = map(int, proposal.tokens[: self._limit])
        tokens = list(takewhile(lambda token: 0 <= token < self._vocabulary, proposed))
        if self._constraint is not None:
            tokens = tokens[: self._constraint.allowed(tokens)]
        # A drawn token that is cut leaves its row: it was drawn, and cannot be right.
        if not tokens and drawn is None:
            return NOTHING
        return Proposal(tokens, proposal.source, tuple(proposal.probabilities[: len(tokens)]), drawn)

    def _most_forced(self, left: int | None) -> int:
        """Maximum number of tokens in a proposal that begins with forced ones."""
        longest = MAX_DRAFT_TOKENS if self._timed is None else min(MAX_DRAFT_TOKENS, self._timed.longest)
        return self._limited(longest, left, self._refeed) if self._with_forced else 0

    def _extended(self, forced: list[int], most: int) -> Proposal:
        """A proposal of ``forced`` tokens and what the drafter expects after them."""
        limit = min(self._limit, most - len(forced))
        self._paused, self._limit = limit <= 0, len(forced) + limit

        def extend(drafter: Drafter) -> Proposal:
            self._give_pending(drafter)
            more = drafter.extend(forced, limit)
            return self._valid(Proposal([*forced, *more.tokens[:limit]], f"grammar+{more.source}"))

        more = None if self._paused else self._guarded(extend)
        self._limit = 0  # the draft length was not chosen for this
        return Proposal(forced, "grammar") if more is None or len(more.tokens) <= len(forced) else more

    def _give_pending(self, drafter: Drafter) -> None:
        if self._pending:
            pending, self._pending = tuple(self._pending), []
            drafter.commit(pending)

    def _limited(self, length: int, left: int | None, refeed: int) -> int:
        """How many of ``length`` draft tokens the next pass may verify."""
        if length <= 0:
            return 0
        limit = length if left is None else min(length, left)
        if refeed:
            # A pass without drafts takes all of it in, and the next one is short again.
            limit = min(limit, (self.controller.longest if self.controller else MAX_REFEED) - refeed)
        if self._quantized_kv_start is not None:
            # Plain decoding quantises the cache at this length: no pass may straddle it, and a pass that reaches it
            # must have nothing to take out again.
            missing = self._quantized_kv_start - max(lengths(self._cache), default=0)
            if missing > 0:
                limit = min(limit, missing - refeed - 2)
        return max(0, limit)

    def _guarded(self, act: Callable[[Drafter], _Result]) -> _Result | None:
        """What ``act`` returns for the drafter; None where there is none, or it fails and is switched off."""
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
        """Count a drafter that failed, and warn. Also repair the random state, which a failing sampler breaks."""
        renew(self._random)  # what decides whether it fails must not decide what the target draws
        self._statistics.failures.append(Failure(drafter.name, f"{type(error).__name__}: {error}"))
        warn_switched_off(drafter, error)
