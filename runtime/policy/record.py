"""What drafters have shown with a model, what their drafts cost, and what drafting may still lose."""

from collections.abc import Sequence
from typing import NamedTuple

from spectool.runtime.drafters.drafter import Proposal, accepted_length
from spectool.runtime.policy.candidate import LEVELS
from spectool.runtime.policy.curve import FAR_OFF, PassCurve

MAX_LOSS = 0.01  # of the time that drafting may lose in the long run
ALLOWANCE = 1.5  # plain passes that drafting may lose before that: two wrong proposals of a dear drafter
SURPLUS = 32.0  # plain passes won that may be lost again, so that a text which turns unpredictable is noticed
DECAY = 0.98  # weight of what was learnt, from one time to the next: the last 50 count, because texts change
PRIOR_ACCEPTANCE = 0.6  # share of a model's tokens taken to be right before any was judged; a better one loses little
_TRIAL = 1.0  # plain passes of asking a model after which what was learnt counts as much as what was expected
_TRIALS = 20  # asks at most after which it does
_GAINING = 0.25, 0.75  # of the rest of a text, in which asking a model pays: before it is known, and once it is
_FORGIVING = 0.999  # weight of what was learnt of a model, for a cycle in which it is not asked: it is tried again
_SHRINKAGE = 4.0  # asks at a level for which those at all levels count
_SMOOTHING = 0.1  # weight of a proposal in the tokens that a pass of a draft model makes


class Acceptance:
    """How often draft tokens are right, as a share of what was said of them; earlier ones count less."""

    def __init__(self, prior: float, share: float) -> None:
        """Begin with a ``share`` that counts for ``prior`` tokens."""
        self._prior, self._prior_right = prior, prior * share
        self._judged, self._right = prior, prior * share

    @property
    def share(self) -> float:
        """Right tokens / tokens judged, each counted as its stated probability."""
        return self._right / self._judged

    def probabilities(self, stated: Sequence[float]) -> list[float]:
        """How probable tokens are, given what their drafter says of each."""
        share = self.share
        return [min(1.0, share * each) for each in stated]

    def learn(self, stated: Sequence[float], right: int) -> None:
        """Learn that of the tokens judged, given what was said of each, the first ``right`` were right."""
        self.fade(DECAY)
        self._right += right
        self._judged += sum(stated)

    def fade(self, weight: float) -> None:
        """Let what was learnt count ``weight`` times as much."""
        self._right = self._prior_right + weight * (self._right - self._prior_right)
        self._judged = self._prior + weight * (self._judged - self._prior)


class DraftCost(NamedTuple):
    """What a draft model costs, in plain passes of the target."""

    token: float  # a pass of it over one token
    reading: float  # each token of a text that it has yet to read
    curve: PassCurve | None = None  # of its passes over several rows; where it is not known, as those of the target


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


class LossAccount:
    """What drafting may still lose, in plain passes, against what would be done without it.

    Attributes:
        left: From 0 downwards there is no drafting, no matter what is promised.
    """

    def __init__(self) -> None:
        """An account of `ALLOWANCE` passes, and `MAX_LOSS` of the time since."""
        self.left = ALLOWANCE

    def charge(self, won: float, passes: float) -> None:
        """Add what a cycle with drafts has won, below 0 lost, in the time of this many plain passes."""
        self.left = min(SURPLUS, self.left + won + MAX_LOSS * passes)

    def recover(self) -> None:
        """Let a cycle without drafts pass."""
        self.left = max(self.left, min(ALLOWANCE, self.left + MAX_LOSS))


class Trials:
    """Drafts against the curve, now and then, without which one that is too dear would never be contradicted.

    They may lose a plain pass, and `MAX_LOSS` of the time, of which each that found nothing leaves half.

    Attributes:
        left: What they may still lose, in plain passes, if the curve is right.
    """

    def __init__(self) -> None:
        self.left, self._share = 1.0, MAX_LOSS
        self._spent = 0.0  # by the latest one

    def costs(self, costs: Sequence[float], hoped: Sequence[float]) -> list[float]:
        """The ``costs`` of a cycle by draft length, or ``hoped`` ones where those are far above and can be tried."""
        self.left = min(SURPLUS, self.left + self._share)
        most = 1.0 + self.left
        return [low if FAR_OFF * low < cost <= most else cost for cost, low in zip(costs, hoped, strict=True)]

    def begin(self, cost: float) -> None:
        """Try a pass that should take ``cost`` plain ones."""
        self._spent = cost - 1.0
        self.left, self._share = self.left - self._spent, self._share / 2

    def end(self, far_less: bool) -> None:
        """Say whether the latest pass took ``far_less``; then nothing was lost by trying it."""
        if far_less and self._spent:
            self.left, self._share = self.left + self._spent, 2 * self._share
        self._spent = 0.0
