"""What drafters have shown with a model, what their drafts cost, and what drafting may still lose."""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from spectool.runtime.drafters.drafter import Proposal, accepted_length
from spectool.runtime.policy.curve import FAR_OFF, PassCurve

MAX_LOSS = 0.01  # of the time that drafting may lose in the long run
ALLOWANCE = 1.5  # plain passes that drafting may lose before that: two wrong proposals of a dear drafter
SURPLUS = 32.0  # plain passes won that may be lost again, so that a text which turns unpredictable is noticed
DECAY = 0.98  # weight of what was learnt, from one time to the next: the last 50 count, because texts change
_UNKNOWN = 4.0, 0.75  # tokens of a model that count as judged at first, and the share of what it says that came true
_MEASURED = 40.0  # tokens that count as judged at first where that share was measured
_AGAINST = 10.0  # first guesses of a model against look-ups that count as judged at first, and as right as any others
_HOPED = 0.04  # tokens that asking a model is hoped to be worth more than expected, so that it is tried
_SPREAD = 0.04  # tokens by which models and texts differ in what asking is worth more than expected
_FEW, _VARIANCE = 4.0, 0.2  # asks that are taken to have been seen before, and the variance of what they were worth
_DOUBT = 6.0  # asks, at least, after which what was learnt counts as much as what was expected
_TRIAL = 4.0  # plain passes that these asks take at most
_FORGIVING = 0.999  # weight of what was learnt of a model, for a cycle in which it is not asked: it is tried again
_TRYING = 0.0025  # of the time that asking a model may take where nothing is expected of it
_MOST_SPARE = 4.0  # plain passes of it that are kept at most; reading a prompt is paid from them, too
_SMOOTHING = 0.1  # weight of a proposal in the tokens that a pass of a draft model makes


class Acceptance:
    """How often draft tokens are right, as a share of what was said of them; earlier ones count less."""

    def __init__(self, prior: float, share: float) -> None:
        """Begin with a ``share`` that counts for ``prior`` tokens."""
        self._prior = self._judged = prior
        self._prior_right = self._right = prior * share

    @property
    def share(self) -> float:
        """Right tokens / tokens judged, each counted as its stated probability."""
        return self._right / self._judged

    def probabilities(self, stated: Sequence[float]) -> list[float]:
        """How probable tokens are, given what their drafter says of each."""
        share = self.share
        return [likely if (likely := share * each) < 1.0 else 1.0 for each in stated]

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
    """What is known of a drafter; outlives a text."""

    def __init__(self) -> None:
        self.acceptance = Acceptance(prior=4.0, share=0.9)  # how far its stated probabilities can be believed
        self.against = Acceptance(_AGAINST, 1.0)  # a model's first guess where look-ups have another one
        self.dearer = 1.0  # how many times as long passes of a model take as measured, against those of the target
        self._measured = DraftCost(0.0, 0.0)  # what a model costs
        self._usual_share = 1.0  # of a model whose guesses are as probable as what is expected of one
        self._tokens_per_pass = 1.0
        self._asks = self._gained = self._squares = 0.0  # of a model: how often, tokens, and the same, squared
        self._seen = 0.0  # asks, of which old ones count as much as new ones
        self._cycles = self._gains = 0.0  # in which it could have been asked, and tokens that this promised to gain
        self._spare = 0.0  # plain passes that trying it may take

    def begin_model(self, cost: DraftCost, honesty: float | None = None) -> None:
        """Say that the drafter is a model, what it costs, and the share of what it says that comes true, if known."""
        self._measured = cost
        self.acceptance = Acceptance(*_UNKNOWN) if honesty is None else Acceptance(_MEASURED, honesty)
        self._usual_share = _UNKNOWN[1] if honesty is None else 1.0  # an unknown one may be as good as others

    @property
    def cost(self) -> DraftCost:
        """What a model costs."""
        token, reading, curve = self._measured
        return DraftCost(token * self.dearer, reading * self.dearer, curve)

    @property
    def cost_of_token(self) -> float:
        """Plain passes for each target token that a model drafts; one with another tokenizer makes more or fewer."""
        return self.cost.token / self._tokens_per_pass

    @property
    def believed(self) -> float:
        """How probable what a model says is, as a share of what is expected of one."""
        return min(1.0, self.acceptance.share / self._usual_share)

    @property
    def gain(self) -> float:
        """Tokens that asking a model is taken to be worth more than was expected: at first, what is hoped.

        What was learnt counts as for the mean of a normal distribution: n asks against their variance by that of means.
        """
        if not self._asks:
            return _HOPED
        mean = self._gained / self._asks
        variance = (self._squares + _FEW * _VARIANCE) / (self._asks + _FEW) - mean * mean
        doubt = min(max(_DOUBT, variance / _SPREAD**2), _TRIAL / max(1e-9, self.cost_of_token))
        known = self._seen / (self._seen + doubt)
        return known * mean + (1.0 - known) * _HOPED

    def learn(self, gained: float) -> None:
        """Learn that asking a model was worth more by these tokens than was expected."""
        self._gained = DECAY * self._gained + gained
        self._squares = DECAY * self._squares + gained * gained
        self._asks = DECAY * self._asks + 1.0
        self._seen += 1.0

    def learn_acceptance(self, proposal: Proposal, committed: Sequence[int], *, against: bool = False) -> None:
        """Count how many tokens of a proposal were right, and the first wrong one; also those ``against`` look-ups."""
        right = accepted_length(proposal.tokens, committed)
        if against:
            self.against.learn(self.acceptance.probabilities(proposal.stated[:1]), min(1, right))
        judged = proposal.stated[: min(right + 1, len(committed))]  # what outlasts the cycle was not contradicted
        self.acceptance.learn(judged, right)

    def count(self, passes: int, tokens: int) -> None:
        """Count the tokens that some passes of a model have made."""
        if passes:
            self._tokens_per_pass += _SMOOTHING * (max(tokens, 0.5) / passes - self._tokens_per_pass)

    def recover(self) -> None:
        """Let a cycle pass in which a model was not asked."""
        self._gained *= _FORGIVING
        self._squares *= _FORGIVING
        self._asks *= _FORGIVING
        self._seen *= _FORGIVING
        self.acceptance.fade(_FORGIVING)
        self._spare = min(_MOST_SPARE, self._spare + _TRYING)

    def usual_gain(self, gain: float) -> float:
        """Tokens of a cycle that asking a model is usually worth more than not to, given what it would ``gain`` now."""
        self._cycles, self._gains = DECAY * self._cycles + 1.0, DECAY * self._gains + max(0.0, gain)
        return self._gains / self._cycles

    def may_try(self, passes: float) -> bool:
        """Whether a model that is not expected to pay may be asked all the same, which takes this many plain passes."""
        if self._spare < passes:
            return False
        self._spare -= passes
        return True


class LossAccount:
    """What drafting may still lose against what would be done without it: `ALLOWANCE` and `MAX_LOSS` of the time.

    Attributes:
        left: Plain passes; from 0 downwards there is no drafting, no matter what is promised.
    """

    def __init__(self) -> None:
        self.left = ALLOWANCE

    def affordable(self, costs: Sequence[float]) -> Sequence[float]:
        """Those ``costs`` of passes, by draft length, after which drafting would not have to rest for long."""
        most = costs[0] + self.left + ALLOWANCE
        return costs if costs[-1] <= most else list(takewhile(lambda cost: cost <= most, costs))

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
