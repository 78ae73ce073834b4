"""What is proposed for one text in every cycle: the first of these that has any tokens.

    forced       what a grammar leaves no choice about, and what look-ups expect after it
    predicted    a text that the answer is expected to repeat, as long as the answer follows it
    drafted      the drafter's guess

A controller bounds its length, and learns what became of it.
"""

from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from spectool import RuntimeUnsupported
from spectool.runtime.decoding.cycle_timer import CycleTimer
from spectool.runtime.decoding.guarded_drafter import GuardedDrafter
from spectool.runtime.draft_length.controller import MAX_PREDICTED_TOKENS, Controller
from spectool.runtime.drafters.drafter import NOTHING, Drafter, Proposal
from spectool.runtime.drafters.hybrid import HybridDrafter
from spectool.runtime.settings import MAX_DRAFT_TOKENS

if TYPE_CHECKING:
    from spectool.runtime.drafters.prediction import PredictionDrafter
    from spectool.runtime.grammar import GrammarConstraint


class Proposer:
    """Proposes for one text.

    Attributes:
        controller: Bounds the length of drafts; None where it is fixed.
        timer: Measures each cycle.
    """

    def __init__(
        self,
        guarded: GuardedDrafter,
        length: int | Controller,
        vocabulary: int,
        *,
        prediction: "PredictionDrafter | None" = None,
        constraint: "GrammarConstraint | None" = None,
    ) -> None:
        """Propose tokens of a target with ``vocabulary`` token ids, of this ``length`` or as long as a controller says.

        ``constraint`` says which tokens may follow; None allows all. What it leaves no choice about may be longer, and
        teaches the controller nothing.
        """
        self.timer = CycleTimer()
        self._guarded, self._prediction = guarded, prediction
        self._predictor: Drafter | None = prediction  # proposes what the prediction expects
        self._vocabulary, self._constraint = vocabulary, constraint
        self._length = length
        self.controller: Controller | None = None
        # No pass is longer than one with the longest draft, also where tokens are forced or fed again.
        self._longest = MAX_DRAFT_TOKENS
        if isinstance(length, Controller):
            self._longest = min(MAX_DRAFT_TOKENS, length.longest)
            self.controller = length
            self._predictor = None if prediction is None else HybridDrafter([prediction])
        self._next_length: int | None = None  # of the drafter's next proposal, where it is settled already
        # Of this cycle:
        self._proposed: Sequence[int] = ()
        self._asked = self._refeed = 0  # tokens that a proposal could have, and that the pass feeds again
        self._predicted = self._shared = False
        self._paused = False  # whether the drafter is left alone

    def start(self, prompt: Sequence[int]) -> None:
        """Start the prediction and the drafter with the prompt."""
        if self.controller is not None:
            self.controller.begin(len(prompt))
        if self._predictor is not None:
            self._predictor.start(prompt)
        self._guarded.start(prompt)

    def drafting_paused(self) -> bool:
        """Whether the next cycle goes without drafts, which is decided here if it was not yet."""
        prediction = self._prediction
        may_return = prediction is not None and prediction.near and self._length != 0
        return not may_return and self._constraint is None and self._settled_length() <= 0

    def propose(self, limit: int, refeed: int = 0, *, shared: bool = False) -> Proposal:
        """A proposal that can be verified safely.

        Args:
            limit: Maximum number of draft tokens that the pass can verify.
            refeed: Committed tokens that it feeds again before the last one.
            shared: Whether it serves other texts as well. A controller, which knows the passes of one text, is then
                neither asked nor taught.
        """
        self.timer.begin()
        self._shared, self._refeed = shared, refeed
        self._predicted, self._asked = False, 0
        if refeed:
            # A pass without drafts takes all of it in, and the next one is short again.
            limit = min(limit, self._longest - refeed)
        limit = max(0, limit)
        proposal = self._from_grammar(limit) or self._from_prediction(limit) or self._from_drafter(limit)
        self._proposed = proposal.tokens
        self.timer.pass_begins()
        return proposal

    def commit(self, tokens: tuple[int, ...], *, begins: bool = False) -> None:
        """Tell drafters and controllers what the target committed; a drafter that is paused hears of it later.

        ``begins`` says that the pass of the next cycle is under way.
        """
        timer = self.timer
        timer.pass_ends(begins)
        if self._predictor is not None:
            self._predictor.commit(tokens)
        elif self._guarded.drafter is None:
            return
        self._guarded.commit(tokens, later=self._paused)
        timer.drafter_ends()
        if self.controller is not None and not self._shared:
            self.controller.learn(
                asked=self._asked > 0,
                proposed=len(self._proposed),
                committed=len(tokens),
                refed=self._refeed,
                draft_seconds=timer.draft_seconds if self._asked and not self._predicted else None,
                pass_seconds=timer.pass_seconds if timer.pass_is_typical else None,
                processor_seconds=timer.processor_seconds,
                caller_seconds=timer.caller_seconds,
                ahead=timer.begun,
            )
        timer.end()

    def _settled_length(self) -> int:
        """The length of the drafter's next proposal, which is settled here if it was not yet; 0 pauses it."""
        if self._guarded.drafter is None:
            self._next_length = 0
        elif self._next_length is None or self._shared:
            self._next_length = self._chosen(MAX_DRAFT_TOKENS)
        return self._next_length

    def _chosen(self, most: int) -> int:
        """The length of a proposal that may have up to ``most`` tokens where the length is not fixed."""
        if isinstance(self._length, Controller):
            return self._longest if self._shared else self._length.choose(most)
        return self._length

    def _from_grammar(self, limit: int) -> Proposal | None:
        """Forced tokens, and what look-ups expect after them; None where the target has a choice."""
        most = min(limit, self._longest)
        forced = [] if self._constraint is None else self._constraint.forced(most)
        if not forced:
            return None
        following = min(self._settled_length(), limit, most - len(forced))
        self._next_length, self._paused = None, following <= 0

        def extend(drafter: Drafter) -> Proposal:
            more = drafter.extend(forced, following)
            tokens = [*forced, *more.tokens[:following]]
            return self._valid(Proposal(tokens, f"grammar+{more.source}"), len(tokens))

        longer = None if self._paused else self._guarded.attempt(extend)
        return Proposal(forced, "grammar") if longer is None or len(longer.tokens) <= len(forced) else longer

    def _from_prediction(self, limit: int) -> Proposal | None:
        """What the prediction expects; None where the answer does not follow it, or the pass is under way."""
        if self._predictor is None or self._prediction is None or not self._prediction.found or self.timer.begun:
            return None
        asked = min(self._chosen(MAX_PREDICTED_TOKENS), limit)
        proposal = self._ask(self._predictor, asked)
        if not proposal.tokens:
            return None
        self._predicted = self._paused = True
        self._asked = asked
        return proposal

    def _from_drafter(self, limit: int) -> Proposal:
        """What the drafter expects."""
        length, self._next_length = self._settled_length(), None
        self._paused = length <= 0
        self._asked = asked = min(length, limit)
        if not asked:
            return NOTHING
        return self._guarded.attempt(partial(self._ask, limit=asked)) or NOTHING

    def _ask(self, drafter: Drafter, limit: int) -> Proposal:
        drafter.costs = None if self._shared else self.controller
        return self._valid(drafter.propose(limit), limit)

    def _valid(self, proposal: Proposal, limit: int) -> Proposal:
        """At most ``limit`` tokens of a proposal, as far as the target has them and the grammar allows them."""
        proposal = proposal.cut(limit)
        drawn = proposal.distribution
        if drawn is not None and (drawn.ndim != 2 or drawn.shape[1] != self._vocabulary):
            raise RuntimeUnsupported(
                f"distribution of the drafts: expected shape [drafts, {self._vocabulary}], got {drawn.shape}"
            )
        tokens = list(takewhile(lambda token: 0 <= token < self._vocabulary, map(int, proposal.tokens)))
        if self._constraint is not None:
            tokens = tokens[: self._constraint.allowed(tokens)]
        # A drawn token that is cut leaves its row: it was drawn, and cannot be right.
        if not tokens and drawn is None:
            return NOTHING
        return Proposal(tokens, str(proposal.source), proposal.probabilities[: len(tokens)], drawn)
