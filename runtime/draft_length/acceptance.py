"""How often guesses are right: the share of observed tokens, with a prior, and by position in a draft."""


class Acceptance:
    """The share of tokens that were right, estimated from a prior and what was seen.

    Attributes:
        right: Tokens that were right, those of the prior included.
        asked: Tokens observed, likewise.
    """

    __slots__ = ("_prior", "asked", "right")

    def __init__(self, prior: float, weight: float) -> None:
        """Expect the share ``prior`` (0..1), as if ``weight`` tokens had been observed."""
        self._prior = prior * weight, weight
        self.right, self.asked = self._prior

    @property
    def rate(self) -> float:
        """The estimate: right / asked."""
        return self.right / self.asked

    def fade(self, memory: float) -> None:
        """Let what was seen so far count ``memory`` (0..1) times as much; the prior keeps its weight."""
        right, asked = self._prior
        self.right = right + memory * (self.right - right)
        self.asked = asked + memory * (self.asked - asked)


class AcceptanceByPosition:
    """Estimates how far along the positions of a draft something lasts: being proposed, being accepted.

    Attributes:
        steps: Probability to get over each position when those before it were passed, shape [longest].
    """

    NEIGHBOUR = 4.0  # observations that the estimate at the position before counts for

    def __init__(self, longest: int) -> None:
        """Begin with even odds, as of two observations of the first position."""
        self._passed = [0.0] * longest
        self._tried = [0.0] * longest
        self._passed[0], self._tried[0] = 1.0, 2.0
        self.steps = [0.5] * longest

    def observe(self, reached: int, limit: int, weight: float) -> None:
        """Count that ``reached`` positions were passed, of ``limit`` that could have been.

        ``weight`` is what everything seen so far counts for beside it.
        """
        passed = self._passed = [count * weight for count in self._passed]
        tried = self._tried = [count * weight for count in self._tried]
        for position in range(reached):
            passed[position] += 1.0
            tried[position] += 1.0
        if reached < limit:
            tried[reached] += 1.0

    def update(self) -> None:
        """Bring ``steps`` up to date: each position's prior is the estimate at the one before it."""
        step = self._passed[0] / self._tried[0]
        self.steps = [step]
        for passed, tried in zip(self._passed[1:], self._tried[1:], strict=True):
            step = (passed + self.NEIGHBOUR * step) / (tried + self.NEIGHBOUR)
            self.steps.append(step)
