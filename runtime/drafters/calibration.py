"""How often guesses are right, by source and stated probability: assumed at first, then learnt from the text.

The assumptions were learnt on people's text that no dictionary had counted, Polish and Ukrainian:

    python benchmarks/calibration.py

It prints the same for any text, such as answers that models wrote, on which dictionaries and repeats differ little.
"""

from collections.abc import Sequence

TENTHS = 10
FROM_PACKS = 0.86, 0.67, 0.6, 0.61, 0.64, 0.62, 0.6, 0.57, 0.57, 0.68
"""By tenths of the probability that a dictionary from packs states, how often it was right as a share of that."""
FROM_TEXT = 0.78, 0.65, 0.65, 0.68, 0.72, 0.75, 0.76, 0.8, 0.93, 0.95
"""The same of a dictionary that was counted in text."""
AGAINST_REPEAT = 0.3
"""How often a dictionary is right, as a share of what it says otherwise, where the text's own repeats say other."""
CONFIRMED, CONTRADICTED, ALONE = 0.6, 3.5, 3.0
"""c: a repeat of m tokens goes on as before with probability m / (m + c), where a dictionary says the same, where it
says other, and where there is none."""


class Calibration:
    """For each level of stated probability, the share of it that came true."""

    __slots__ = ("_right", "_stated")

    def __init__(self, shares: Sequence[float], weight: float) -> None:
        """Begin with a share for each level, which counts as much as guesses of which ``weight`` in all is said."""
        self._right = [weight * share for share in shares]
        self._stated = [weight] * len(shares)

    def share(self, level: int) -> float:
        """Right guesses of this level / the sum of their stated probabilities."""
        return self._right[level] / self._stated[level]

    def learn(self, level: int, stated: float, right: bool) -> None:
        """Learn whether a guess was right of which ``stated`` was said."""
        self._right[level] += right
        self._stated[level] += stated


def tenth(probability: float) -> int:
    """The level of a stated probability: 0 for those below 0.1, 9 for 0.9 and more.

    >>> tenth(0.05), tenth(0.95), tenth(1.0)
    (0, 9, 9)
    """
    return min(TENTHS - 1, int(TENTHS * probability))
