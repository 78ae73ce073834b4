"""What drafters have shown: how far they can be believed, what asking a model gains, and what drafting has lost."""

from collections.abc import Sequence

from spectool.artifacts.pass_costs import DraftFacts
from spectool.runtime.draft_length.timings import STALE, DraftTimes

MAX_LOSS = 0.015  # share of the time that drafting may lose in all
ALLOWANCE = 8.0  # plain passes that drafting may lose before that
MODEL_SHARE = 0.5  # of what drafting may lose, that one draft model may lose of what look-ups win
SURPLUS = 32.0  # plain passes won by drafting that may be lost again
COST_FADING = 0.998  # weight of the price of a model, from cycle to cycle, once it was not asked for long
KNOWN = 8.0  # observations that an earlier estimate counts for


class StatedAcceptance:
    """How often draft tokens are right, as a share of what their drafter says of them; earlier ones count less."""

    DECAY = 0.98  # weight of what was learnt, from one proposal to the next

    def __init__(self, prior: float, share: float) -> None:
        """Begin with a ``share`` that counts for ``prior`` tokens."""
        self._prior, self._prior_right = prior, prior * share
        self._observed, self._right = prior, prior * share

    @property
    def share(self) -> float:
        """Right tokens / tokens judged, each counted as its stated probability."""
        return self._right / self._observed

    def probabilities(self, stated: Sequence[float]) -> list[float]:
        """How probable tokens are, given what their drafter says of each."""
        share = self.share
        return [min(1.0, share * each) for each in stated]

    def learn(self, stated: Sequence[float], right: int) -> None:
        """Learn that of the tokens judged, given what was said of each, the first ``right`` were right."""
        self._right = self._prior_right + self.DECAY * (self._right - self._prior_right) + right
        self._observed = self._prior + self.DECAY * (self._observed - self._prior) + sum(stated)


class LossAccount:
    """What drafting may still lose, in plain passes, against what would be done without it.

    Attributes:
        left: From 0 downwards there is no drafting, no matter what the estimates say.
    """

    def __init__(self, part: float = 1.0) -> None:
        """An account of ``ALLOWANCE`` passes and `MAX_LOSS` of the time since, or of a ``part`` of both."""
        self._allowance, self._share = part * ALLOWANCE, part * MAX_LOSS
        self.left = self._allowance

    def settle(self, won: float, passes: float) -> None:
        """Add what a cycle with drafts has won, below 0 lost, in the time of this many passes."""
        self.left = min(SURPLUS, self.left + won + self._share * passes)

    def rest(self) -> None:
        """Let a cycle without drafts pass."""
        self.left = max(self.left, min(self._allowance, self.left + self._share))


class ModelRecord:
    """What a draft model takes, and what asking it has gained against the best look-up.

    Asking gains the more, the less sure the look-up is:

        gain = benefit * doubt - price        benefit, price: averages, in tokens; doubt: 0..1

    Attributes:
        times: Seconds of the model.
        losses: What asking it may still lose.
    """

    HOPED = 0.6  # tokens that asking is expected to add before anything is known, where look-ups know nothing
    PRIOR = 6.0  # times that the hope counts for, fewer where a draft token is dear
    DECAY = 0.99  # weight of what was learnt, from cycle to cycle, so that a model not asked for long is tried again

    def __init__(self) -> None:
        self.times = DraftTimes()
        self.losses = LossAccount(MODEL_SHARE)
        self._asked = self._doubt = self._benefit = self._price = 0.0  # sums over the times that it was asked
        self._rested = 0  # cycles since it was last asked, or half of them when it was asked again, and so on
        self._news = 0  # times that it was asked since anything was kept

    def gain(self, doubt: float, price: float) -> float:
        """Tokens that asking it promises, where the best look-up's first token is wrong with probability ``doubt``.

        ``price`` is the tokens that would usually be written in the time of a draft token.
        """
        prior = self.PRIOR * max(0.1, 1.0 - price)
        benefit = (self._benefit + prior * self.HOPED) / (self._doubt + prior)
        return benefit * doubt - (self.fading * self._price + prior * price) / (self._asked + prior)

    @property
    def fading(self) -> float:
        """What its price counts for: the less, the longer ago it was asked last, since the machine may be free now."""
        return COST_FADING ** max(0, self._rested - STALE)

    def settle(self, benefit: float, doubt: float, price: float) -> None:
        """Record how many more tokens there were for asking it, below 0 fewer, and the usual ``price`` of that."""
        self._news, self._rested = self._news + 1, self._rested // 2  # one look may not be enough
        self._fade()
        self._asked, self._doubt = self._asked + 1.0, self._doubt + doubt
        self._benefit, self._price = self._benefit + benefit, self._price + price

    def rest(self) -> None:
        """Let a cycle pass in which it was not asked."""
        self._rested += 1
        self._fade()
        self.losses.rest()

    def start_from(self, facts: DraftFacts) -> None:
        """Start from what was learnt before."""
        self.times.start_from(facts.fixed, facts.per_token, facts.per_missed)
        if facts.benefit is not None:
            self._asked = self._doubt = KNOWN
            self._benefit, self._price = KNOWN * facts.benefit, KNOWN * facts.price

    @property
    def untried(self) -> bool:
        """Whether nothing is known of what asking it gains."""
        return not self._asked

    @property
    def is_news(self) -> bool:
        """Whether so much has been learnt since `facts` that it is worth keeping."""
        return self._news >= 2 * KNOWN

    def facts(self) -> DraftFacts:
        """What is worth keeping."""
        self._news, times = 0, self.times
        benefit = self._benefit / self._doubt if self._doubt else None
        price = self._price / self._asked if self._asked else 0.0
        return DraftFacts(benefit, price, times.fixed, times.per_token, times.per_missed)

    def _fade(self) -> None:
        self._asked, self._doubt = self.DECAY * self._asked, self.DECAY * self._doubt
        self._benefit, self._price = self.DECAY * self._benefit, self.DECAY * self._price
