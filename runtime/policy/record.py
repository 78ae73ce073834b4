"""What a drafter has shown with a model: how often it is right, what its drafts cost, and what asking it has lost."""

from collections.abc import Sequence
from typing import NamedTuple

from spectool.runtime.drafters.drafter import Proposal, accepted_length
from spectool.runtime.policy.account import Acceptance, LossAccount

_MODEL_LOSS = 0.004  # of the time that asking one model may lose: the look-ups need the rest of `MAX_LOSS`
_USUAL = 0.5  # of a model's tokens are right, until more is known; asking a useless one for more costs too much
_FORGIVING = 0.995  # weight of what was learnt of a model, for a cycle in which it is not asked: it is tried again
_SMOOTHING = 0.1  # weight of a proposal in the tokens that a pass of a draft model makes


class DraftCost(NamedTuple):
    """What a draft model costs, in plain passes of the target.

    Attributes:
        token: A pass of it over one token.
        reading: Each token of a text that it has yet to read.
    """

    token: float
    reading: float


class Record:
    """What is known of a drafter; outlives a text.

    Attributes:
        acceptance: How far its stated probabilities can be believed.
        usual: How often a token of a model is right, whatever it states.
        account: What asking a model may still lose against the look-ups.
        cost: What a model costs.
    """

    def __init__(self) -> None:
        self.acceptance, self.usual = Acceptance(prior=4.0, share=0.9), Acceptance(prior=6.0, share=_USUAL)
        self.account = LossAccount(_MODEL_LOSS)
        self.cost = DraftCost(0.0, 0.0)
        self._tokens_per_pass = 1.0

    def begin_model(self, cost: DraftCost) -> None:
        """Say that the drafter is a model, and what it costs; until it has shown more, it is believed by half."""
        self.cost, self.acceptance = cost, Acceptance(prior=6.0, share=_USUAL)

    @property
    def cost_of_token(self) -> float:
        """Plain passes for each target token that a model drafts; one with another tokenizer makes more or fewer."""
        return self.cost.token / self._tokens_per_pass

    def judge(self, proposal: Proposal, committed: Sequence[int]) -> None:
        """Count how many tokens of a proposal were right, and the first wrong one."""
        if proposal.tokens:
            right = accepted_length(proposal.tokens, committed)
            judged = proposal.stated[: min(right + 1, len(committed))]  # what outlasts the cycle was not contradicted
            self.acceptance.learn(judged, right)
            self.usual.learn([1.0] * len(judged), right)

    def count(self, passes: int, tokens: int) -> None:
        """Count the tokens that some passes of a model have made."""
        if passes:
            self._tokens_per_pass += _SMOOTHING * (max(tokens, 0.5) / passes - self._tokens_per_pass)

    def rest(self) -> None:
        """Let a cycle pass in which a model was not asked."""
        self.account.rest()
        self.usual.fade(_FORGIVING)
        self.acceptance.fade(_FORGIVING)
