"""What a cycle costs and what a proposal is worth, in tokens; `hybrid` says why the worth is a difference."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple


def expected_accepted_length(probabilities: Iterable[float]) -> float:
    """Number of draft tokens accepted on average, each with its probability given those before it.

    >>> expected_accepted_length([0.5, 0.5])
    0.75
    >>> expected_accepted_length([1.0, 1.0, 0.5])
    2.5
    """
    return sum(accumulate(probabilities, mul), 0.0)


class Prices(NamedTuple):
    """What a cycle costs.

    Attributes:
        curve: Seconds of a pass by rows [longest draft + 2]; place 0 is not used.
        caller: Seconds that the caller takes for a token.
        rate: Usual tokens per second.
    """

    curve: Sequence[float]
    caller: float
    rate: float

    @property
    def plain(self) -> float:
        """Seconds of a cycle without drafts."""
        return max(self.curve[1], self.caller)

    def worth(self, tokens: float, seconds: float) -> float:
        """Tokens of a cycle less those that its seconds would usually give."""
        return tokens - self.rate * seconds

    def best_cut(
        self, probabilities: Sequence[float], before: float = 1.0, rows: int = 1, drafting: float = 0.0
    ) -> tuple[int, float]:
        """How many more tokens of a proposal promise most, and what they are worth.

        Args:
            probabilities: Of each token, given those before it.
            before: The probability that the tokens already in the pass are right.
            rows: Their number plus one.
            drafting: Seconds of drafting for each token.

        >>> Prices([0, 1, 1.25, 1.5], 0.0, 1.0).best_cut([0.5, 0.25])
        (1, 0.25)
        """
        best, most, worth, right = 0, 0.0, 0.0, before
        for length, probability in enumerate(probabilities, 1):
            right *= probability
            step = drafting + self.curve[rows + length] - self.curve[rows + length - 1]
            worth += right * (1.0 - self.rate * self.caller) - self.rate * step
            if worth > most:
                best, most = length, worth
        return best, most
