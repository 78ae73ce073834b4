"""What a drafter has shown with a model: how often it is right, what its drafts cost, and what asking it has gained."""

from collections.abc import Sequence
from typing import NamedTuple

from spectool.runtime.drafters.drafter import Proposal, accepted_length
from spectool.runtime.policy.account import DECAY, Acceptance
from spectool.runtime.policy.candidate import LEVELS
from spectool.runtime.policy.curve import PassCurve

PRIOR_ACCEPTANCE = 0.6  # share of a model's tokens taken to be right before any was judged; a better one loses little
_TRIAL = 1.0  # plain passes of asking a model after which what was learnt counts as much as what was expected
_TRIALS = 20  # asks at most after which it does
_GAINING = 0.25, 0.75  # of the rest of a text, in which asking a model pays: before it is known, and once it is
_FORGIVING = 0.999  # weight of what was learnt of a model, for a cycle in which it is not asked: it is tried again

_SHRINKAGE = 4.0  # asks at a level for which those at all levels count
_SMOOTHING = 0.1  # weight of a proposal in the tokens that a pass of a draft model makes


class DraftCost(NamedTuple):
    """What a draft model costs, in plain passes of the target.

    Attributes:
        token: A pass of it over one token.
        reading: Each token of a text that it has yet to read.
        curve: What its passes over several rows cost; as those of the target where that is not known.
    """

    token: float
    reading: float
    curve: PassCurve | None = None


class Record:
    """What is known of a drafter; outlives a text.

    Attributes:
        acceptance: How far its stated probabilities can be believed.
        cost: What a model costs.
    """

    def __init__(self) -> None:
        self.acceptance = Acceptance(prior=4.0, share=0.9)
        self.cost = DraftCost(0.0, 0.0)
        self._tokens_per_pass = 1.0
        self._asks, self._gained = [0.0] * LEVELS, [0.0] * LEVELS  # of a model, by level; tokens

    def begin_model(self, cost: DraftCost) -> None:
        """Say that the drafter is a model, and what it costs."""
        self.cost, self.acceptance = cost, Acceptance(prior=6.0, share=PRIOR_ACCEPTANCE)

    @property
    def cost_of_token(self) -> float:
        """Plain passes for each target token that a model drafts; one with another tokenizer makes more or fewer."""
        return self.cost.token / self._tokens_per_pass

    def gain(self, levels: Sequence[int]) -> float:
        """Tokens that asking a model at places of these levels is worth more than was expected; 0 if nothing is known.

        Little is known of a level on which it was not asked, so what is known of all counts there.
        """
        asks = sum(self._asks)
        if not asks or not levels:
            return 0.0
        average = sum(self._gained) / asks
        gains = ((self._gained[at] + _SHRINKAGE * average) / (self._asks[at] + _SHRINKAGE) for at in levels)
        return self._known * sum(gains) / len(levels)

    @property
    def gaining(self) -> float:
        """The share of a text's cycles in which asking a model pays."""
        first, later = _GAINING
        return first + (later - first) * self._known

    @property
    def _known(self) -> float:
        """How much what was learnt counts, 0 to 1: a cheap model is tried more often before it is known."""
        spent = sum(self._asks) * max(self.cost_of_token, _TRIAL / _TRIALS) if self.cost.token else 0.0
        return spent / (spent + _TRIAL)

    def learn(self, levels: Sequence[int], gained: float) -> None:
        """Learn that asking a model at places of these levels was worth more by these tokens than was expected."""
        for at in levels:
            self._gained[at] = DECAY * self._gained[at] + gained / len(levels)
            self._asks[at] = DECAY * self._asks[at] + 1.0 / len(levels)

    def learn_acceptance(self, proposal: Proposal, committed: Sequence[int]) -> None:
        """Count how many tokens of a proposal were right, and the first wrong one."""
        if proposal.tokens:
            right = accepted_length(proposal.tokens, committed)
            judged = proposal.stated[: min(right + 1, len(committed))]  # what outlasts the cycle was not contradicted
            self.acceptance.learn(judged, right)

    def count(self, passes: int, tokens: int) -> None:
        """Count the tokens that some passes of a model have made."""
        if passes:
            self._tokens_per_pass += _SMOOTHING * (max(tokens, 0.5) / passes - self._tokens_per_pass)

    def recover(self, levels: Sequence[int]) -> None:
        """Let a cycle pass in which a model was not asked at places of these levels."""
        for at in levels:
            self._gained[at] *= _FORGIVING
            self._asks[at] *= _FORGIVING
        self.acceptance.fade(_FORGIVING)
