"""What is proposed for one text in every cycle: what the policy chooses among the drafters, unless a grammar forces it.

forced       the tokens that the grammar forces, and what look-ups expect after them
chosen       what the policy makes of the proposals of the drafters, one of which may follow a prediction
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spectool.runtime.decoding.cycle_timer import CycleTimer
from spectool.runtime.drafters.drafter import NOTHING, Proposal
from spectool.runtime.drafters.guarded import GuardedDrafter
from spectool.runtime.policy.policy import Candidate, Choice, Policy
from spectool.runtime.settings import MAX_DRAFT_TOKENS

if TYPE_CHECKING:
    from spectool.runtime.grammar import GrammarConstraint


class Proposer:
    """Proposes for one text.

    Attributes:
        policy: Chooses among the drafters.
        timer: Measures each cycle.
    """

    def __init__(
        self,
        drafters: Sequence[GuardedDrafter],
        policy: Policy,
        constraint: "GrammarConstraint | None" = None,
    ) -> None:
        """Propose what ``policy`` chooses among ``drafters``.

        The ``constraint`` says which tokens may follow; None allows all.
        """
        self.policy, self.timer = policy, CycleTimer()
        self._drafters, self._constraint = drafters, constraint
        self._look_ups = [drafter for drafter in drafters if not drafter.is_model]
        # No pass is longer than one with the longest draft, also where tokens are forced or fed again.
        self._longest = min(MAX_DRAFT_TOKENS, policy.longest) if policy.is_automatic else MAX_DRAFT_TOKENS
        self._context = 0  # tokens of the text
        # Of this cycle:
        self._choice: Choice | None = None
        self._refed = self._proposed = 0  # tokens that the pass feeds again, and that it verifies
        self._alone = True  # whether the pass serves no other text

    def start(self, prompt: Sequence[int]) -> None:
        """Start the drafters with the prompt."""
        self._context = len(prompt)
        self.policy.start()
        for drafter in self._drafters:
            drafter.start(prompt)

    def drafting_paused(self) -> bool:
        """Whether the next cycle goes without drafts, so that its pass may begin before its token is known."""
        if self._constraint is not None:
            return False
        return self.policy.paused() or not any(drafter.may_propose() for drafter in self._drafters)

    def propose(self, limit: int, refed: int = 0) -> Proposal:
        """A proposal that can be verified safely, for a text that is alone.

        Args:
            limit: Maximum number of draft tokens that the pass can verify.
            refed: Committed tokens that it feeds again before the last one.
        """
        limit = self._begin(limit, refed, alone=True)
        proposal = self._forced(limit)
        if proposal is None and not self.timer.begun and limit and not self.policy.paused():
            self._choice = self.policy.propose(self._drafters, limit, self._context, refed)
            proposal = self._choice.proposal
        return self._taken(NOTHING if proposal is None else proposal, limit)

    def candidates(self, limit: int, refed: int, policy: Policy) -> list[Candidate] | Proposal:
        """What the look-ups propose for a text that shares its pass, for a ``policy`` to choose from.

        Where nothing can be chosen, it is a settled proposal: of forced tokens, of a policy of the text's own, such as
        a fixed length, or of a draft model, whose drawn drafts must all be used.
        """
        limit = self._begin(limit, refed, alone=False)
        forced = self._forced(limit)
        if forced is not None or not limit:
            return forced or NOTHING
        if policy is self.policy and len(self._look_ups) == len(self._drafters):
            return self.policy.candidates(self._look_ups, min(limit, policy.longest))
        if self.policy.paused():
            return NOTHING
        self._choice = self.policy.propose(self._drafters, limit, self._context, refed)
        return self._choice.proposal

    def take(self, proposal: Proposal) -> Proposal:
        """Propose one of the candidates, as far as the grammar allows it."""
        return self._taken(proposal, len(proposal.tokens))

    def commit(self, tokens: tuple[int, ...], *, begins: bool = False) -> None:
        """Let policy and drafters learn what the target committed.

        ``begins`` says that the pass of the next cycle is under way.
        """
        timer, policy = self.timer, self.policy
        timer.pass_ends(begins)
        if not self._alone:
            policy.judge(self._drafters, tokens)
        elif self._choice is not None:
            policy.learn(self._drafters, self._choice, tokens)
        elif not self._proposed:
            policy.rest(self._drafters)
        if self._alone and timer.pass_is_typical:
            rows = 0 if timer.was_begun else 1 + self._refed + self._proposed
            policy.observe(rows, timer.pass_seconds, self._context, drafted=rows > 1)
        for drafter in self._drafters:
            drafter.follow(tokens)
        self._context += len(tokens)

    def _begin(self, limit: int, refed: int, *, alone: bool) -> int:
        """Begin a cycle; return how many draft tokens the pass can verify."""
        self.timer.begin()
        self._refed, self._alone, self._choice = refed, alone, None
        # A pass without drafts takes in all that is fed again, and the next one is short again.
        return max(0, min(limit, self._longest - refed) if refed else limit)

    def _forced(self, limit: int) -> Proposal | None:
        """Forced tokens, and what look-ups expect after them; None where the target has a choice."""
        most = min(limit, self._longest)
        forced = [] if self._constraint is None else self._constraint.forced(most)
        if not forced:
            return None
        following = 0 if self.policy.paused() else min(self.policy.longest, most - len(forced))
        longest = Proposal(forced, "grammar")
        for drafter in self._look_ups if following > 0 else ():
            more = drafter.extend(forced, following)
            longer = self._allowed(Proposal([*forced, *more.tokens], f"grammar+{more.source}"), most)
            longest = max(longest, longer, key=lambda proposal: len(proposal.tokens))
        return longest

    def _taken(self, proposal: Proposal, limit: int) -> Proposal:
        """The proposal of this cycle, as far as it can be verified and the grammar allows it."""
        proposal = self._allowed(proposal, limit)
        self._proposed = len(proposal.tokens)
        self.timer.pass_begins()
        return proposal

    def _allowed(self, proposal: Proposal, limit: int) -> Proposal:
        proposal = proposal.cut(limit)
        if self._constraint is None:
            return proposal
        count = self._constraint.allowed(proposal.tokens)
        # A drawn token that is cut leaves its row: it was drawn, and cannot be right.
        return proposal.cut(count)._replace(distribution=proposal.distribution)
