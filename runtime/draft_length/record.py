"""What a drafter has shown: how far its proposals get, what they take, and what they have lost.

tokens(k)  = 1 + q1 + q1 q2 + ... + q1 .. qk        qj: token j is proposed and accepted, given those before
seconds(k) = drafter + pass + caller, averaged over the lengths that proposals of at most k tokens turn out to have
"""

from collections.abc import Sequence

from spectool.artifacts.pass_costs import DraftFacts
from spectool.runtime.draft_length.timings import DraftTimes

MAX_DRAFT_TOKENS = 16
MAX_LOSS = 0.02  # share of the time that drafting may lose in all
ALLOWANCE = 8.0  # plain passes that drafting may lose before that
MODEL_SHARE = 0.5  # of what drafting may lose, that one draft model may lose of what look-ups win
SURPLUS = 32.0  # plain passes won by drafting that may be lost again
MEMORY = 0.93  # weight of a cycle when another has followed
KNOWN = 8.0  # observations that an earlier estimate counts for
FADING = 0.98  # weight of a cycle for each plain token since, which teaches nothing about the drafter


class ByPosition:
    """How far a draft gets along its positions: until it is no longer proposed, or no longer accepted.

    Attributes:
        steps: Probability of getting past each position after those before it, shape [most].
    """

    NEIGHBOUR = 4.0  # observations that the estimate of the previous position counts for

    def __init__(self, most: int) -> None:
        self.steps = [0.5] * most
        self._passed, self._tried = [0.0] * most, [0.0] * most
        self._passed[0], self._tried[0] = 1.0, 2.0

    def observe(self, reached: int, limit: int, weight: float) -> None:
        """Count that ``reached`` of ``limit`` positions were passed; earlier counts weigh ``weight`` times as much."""
        passed = self._passed = [count * weight for count in self._passed]
        tried = self._tried = [count * weight for count in self._tried]
        for position in range(reached):
            passed[position] += 1.0
            tried[position] += 1.0
        if reached < limit:
            tried[reached] += 1.0

    def update(self) -> None:
        """Recompute ``steps``; the prior of each position is the estimate of the one before it."""
        step = self._passed[0] / self._tried[0]
        self.steps = [step]
        for passed, tried in zip(self._passed[1:], self._tried[1:], strict=True):
            step = (passed + self.NEIGHBOUR * step) / (tried + self.NEIGHBOUR)
            self.steps.append(step)


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


class DraftRecord:
    """How far the proposals of a drafter get, and what they take.

    Attributes:
        times: Seconds of the drafter.
        accepted: How far it gets before a token is not proposed, or not accepted.
        proposed: How far it gets before a token is not proposed.
    """

    def __init__(self, most: int) -> None:
        """Of proposals of up to ``most`` tokens."""
        self.times = DraftTimes()
        self.accepted, self.proposed = ByPosition(most), ByPosition(most)

    def observe(self, asked: int, proposed: int, accepted: int, weight: float) -> None:
        """Record a proposal; earlier ones weigh ``weight`` times as much."""
        self.accepted.observe(accepted, asked, weight)
        self.proposed.observe(proposed, asked, weight)

    def update(self) -> None:
        """Update the estimates."""
        for estimate in (self.times, self.accepted, self.proposed):
            estimate.update()

    def expected(
        self, curve: Sequence[float], caller: float, steps: Sequence[float] | None = None
    ) -> tuple[list[float], list[float]]:
        """Expected tokens and seconds of a cycle by draft length, shape [most + 1] each.

        Args:
            curve: Seconds of a pass by rows, those of a plain pass that begins ahead at 0.
            caller: Seconds that the caller takes for a token. A plain pass goes on meanwhile.
            steps: Probabilities that each token is accepted when those before it were; by default as learnt.
        """
        fixed, per_token = self.times.fixed, self.times.per_token
        tokens, seconds = [1.0], [max(curve[0], caller)]
        count, product, lasting, spent, cost = 1.0, 1.0, 1.0, 0.0, fixed + curve[1]
        for k, (step, going) in enumerate(zip(steps or self.accepted.steps, self.proposed.steps, strict=True), 1):
            product *= step
            count += product
            tokens.append(count)
            # Proposals that end here have k - 1 tokens, even if a longer one was asked for.
            spent += lasting * (1.0 - going) * cost
            lasting *= going
            cost = fixed + per_token * k + curve[k + 1]
            seconds.append(spent + lasting * cost + caller * count)
        return tokens, seconds


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
        self._news = 0  # times that it was asked since anything was kept

    def gain(self, doubt: float, price: float) -> float:
        """Tokens that asking it promises, where the best look-up's first token is wrong with probability ``doubt``.

        ``price`` is the tokens that would usually be written in the time of a draft token.
        """
        prior = self.PRIOR * max(0.1, 1.0 - price)
        benefit = (self._benefit + prior * self.HOPED) / (self._doubt + prior)
        return benefit * doubt - (self._price + prior * price) / (self._asked + prior)

    def settle(self, benefit: float, doubt: float, price: float) -> None:
        """Record how many more tokens there were for asking it, below 0 fewer, and the usual ``price`` of that."""
        self._news += 1
        self._fade()
        self._asked, self._doubt = self._asked + 1.0, self._doubt + doubt
        self._benefit, self._price = self._benefit + benefit, self._price + price

    def rest(self) -> None:
        """Let a cycle pass in which it was not asked."""
        self._fade()
        self.losses.rest()

    def start_from(self, facts: DraftFacts) -> None:
        """Start from what was learnt before."""
        self.times.start_from(facts.fixed, facts.per_token, facts.per_missed)
        if facts.benefit is not None:
            self._asked = self._doubt = KNOWN
            self._benefit, self._price = KNOWN * facts.benefit, KNOWN * facts.price

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
