"""The draft length of a request that fixes it."""

from typing import Any


class FixedLength:
    """Chooses one length in every cycle, through the interface of a `Controller`.

    Attributes:
        longest: The draft length.
    """

    def __init__(self, length: int) -> None:
        self.longest = length

    def for_prediction(self) -> "FixedLength":
        """The same: a fixed length holds for all drafts."""
        return self

    def begin(self, prompt: int = 0, chooses_length: bool = False) -> None:
        """Begin a generation."""

    def choose(self) -> int:
        """The draft length."""
        return self.longest

    def learn(self, **cycle: Any) -> None:
        """Learn nothing from a cycle."""
