"""What drafters have shown: how far their probabilities can be believed, and what drafting has lost."""

from collections.abc import Sequence

from spectool.runtime.policy.curve import FAR_OFF

MAX_LOSS = 0.01  # of the time that drafting may lose in the long run
ALLOWANCE = 1.5  # plain passes that drafting may lose before that: two wrong proposals of a dear drafter
SURPLUS = 32.0  # plain passes won that may be lost again, so that a text which turns unpredictable is noticed
DECAY = 0.98  # weight of what was learnt, from one time to the next: the last 50 count, because texts change


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
