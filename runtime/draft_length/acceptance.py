"""How often guesses are right: the share of observed tokens, with a prior."""


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
