"""How many drafts a pass over several texts verifies: one number for all of them, because they share a block.

A block of B rows has B (1 + k) positions, and a row with a shorter draft is padded. So the k with the most expected
tokens per second is taken, over the measured cost of a pass by its positions, unless it gains less than 5%:

    tokens(k)  = B + sum over the rows of p1 + p1 p2 + ... + p1 .. pk       pj: token j of its proposal is right
    seconds(k) = of a cycle with B (1 + k) positions

All k are tried, since costs come in steps: what is next to a costly size can be cheap. A cost that is not known is
taken to be that of the next smaller known one while there is a budget for trying. What drafting really loses against
plain passes is summed up over all numbers of rows, and beyond a budget there are no drafts.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul

from spectool.runtime.draft_length.controller import EXPLORATION_BUDGET, EXPLORATION_SHARE
from spectool.runtime.draft_length.record import LossAccount
from spectool.runtime.draft_length.timings import PassTimes
from spectool.runtime.settings import MAX_DRAFT_TOKENS

LEAST_SPEEDUP = 1.05  # times the speed of plain passes that drafts must promise


class BlockLength:
    """Chooses the draft length of each block.

    Attributes:
        seconds: Of a cycle by the positions in its block.
    """

    def __init__(self, rows: int, curve: Mapping[int, float] | None = None) -> None:
        """Choose for up to ``rows`` rows; ``curve`` has seconds by positions that were measured before."""
        self.seconds = PassTimes(rows * (1 + MAX_DRAFT_TOKENS))
        self.seconds.carry(curve or {})
        self._losses = LossAccount()
        self._exploration_budget = EXPLORATION_BUDGET  # plain cycles that trying may still cost

    def choose(self, probabilities: Sequence[Sequence[float]]) -> int:
        """The draft length for rows whose draft tokens are right with these probabilities, given those before each."""
        rows, times = len(probabilities), self.seconds
        longest = max(map(len, probabilities), default=0)
        if not longest or self._losses.left <= 0 or not times.measured():
            return 0
        times.update()
        tokens = [float(rows)] * (longest + 1)
        for each in filter(None, probabilities):
            promised = list(accumulate(accumulate(each, mul)))  # tokens, by draft length
            for k in range(1, longest + 1):
                tokens[k] += promised[min(k, len(promised)) - 1]
        curve = times.curve
        # The best of many noisy figures seems better than it is, so drafts that hardly gain anything are left out.
        best = max(range(longest + 1), key=lambda k: tokens[k] / curve[rows * (1 + k)] / (LEAST_SPEEDUP if k else 1))
        hoped = times.at_least(max(0.0, self._exploration_budget))
        untried = [k for k in range(longest + 1) if not times.known(rows * (1 + k))]
        if untried and self._exploration_budget > 0:
            k = max(untried, key=lambda k: tokens[k] / hoped[rows * (1 + k)])
            bar = LEAST_SPEEDUP if k else 1.0
            if tokens[k] / hoped[rows * (1 + k)] > bar * tokens[best] / curve[rows * (1 + best)]:
                cost = curve[rows * (1 + k)] / curve[rows] - tokens[k] / rows
                self._exploration_budget -= max(0.0, cost)
                return k
        return best

    def learn(self, rows: int, width: int, committed: int, seconds: float) -> None:
        """Record a cycle over ``rows`` rows of ``width`` tokens."""
        positions = rows * width
        if positions >= len(self.seconds.curve):
            return  # a request asked for a longer draft
        self.seconds.add(positions, seconds)
        self._exploration_budget = min(EXPLORATION_BUDGET, self._exploration_budget + EXPLORATION_SHARE)
        if width == 1:
            self._losses.rest()
            return
        plain = self.seconds.curve[rows]
        if plain:
            spent = self.seconds.typical(positions) / plain  # not these very seconds, as in `Controller.learn`
            self._losses.settle(committed / rows - spent, committed / rows)
