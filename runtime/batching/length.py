"""How many drafts a pass over several texts verifies: one number for all of them, because they share a block.

A block of B rows has B (1 + k) places, and a row with a shorter draft is padded. So the k with the most expected tokens
per second is taken, over the measured cost of a pass by its places, unless it gains less than 5%:

    tokens(k)  = B + sum over the rows of p1 + p1 p2 + ... + p1 .. pk       pj: token j of its proposal is right
    seconds(k) = of a cycle with B (1 + k) places

All k are tried, since costs come in steps: what is next to a costly size can be cheap. A cost that is not known is
taken to be that of the next smaller known one while there is a budget for trying. What drafting really loses against
plain passes is summed up over all numbers of rows, and beyond a budget there are no drafts.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, repeat
from operator import mul

from spectool.runtime.decoding.drafter import Proposal
from spectool.runtime.draft_length.controller import EXPLORATION_BUDGET, EXPLORATION_SHARE, LEAST_SPEEDUP, OUTLIER
from spectool.runtime.draft_length.record import ALLOWANCE, MAX_DRAFT_TOKENS, MAX_LOSS, SURPLUS
from spectool.runtime.draft_length.timings import PassTimes

_FADING = 0.98  # weight of what a row's earlier proposals taught, from one to the next
_PRIOR = 10.0  # tokens that the prior of an acceptance counts for


class RowAcceptance:
    """How often a text's drafts are right, as a share of what their drafter says."""

    def __init__(self) -> None:
        self._right, self._stated = 0.8 * _PRIOR, _PRIOR

    def expected(self, proposal: Proposal) -> list[float]:
        """Expected accepted tokens of the first 1, 2, … tokens of a proposal."""
        share = self._right / self._stated
        return list(accumulate(accumulate((min(1.0, share * each) for each in _stated(proposal)), mul)))

    def learn(self, proposal: Proposal, accepted: int) -> None:
        """Learn that the first ``accepted`` tokens of a proposal were right, and no more."""
        judged = list(_stated(proposal))[: accepted + 1]
        self._right = _PRIOR * 0.8 + _FADING * (self._right - 0.8 * _PRIOR) + accepted
        self._stated = _PRIOR + _FADING * (self._stated - _PRIOR) + sum(judged)


class BlockLength:
    """Chooses the draft length of each block.

    Attributes:
        seconds: Of a cycle by the places in its block.
    """

    def __init__(self, rows: int, curve: Mapping[int, float] | None = None) -> None:
        """Choose for up to ``rows`` rows; ``curve`` has seconds by places that were measured before."""
        self.seconds = PassTimes(rows * (1 + MAX_DRAFT_TOKENS))
        self.seconds.carry(curve or {})
        self._loss_budget = ALLOWANCE  # plain cycles that drafting may still lose
        self._exploration_budget = EXPLORATION_BUDGET  # plain cycles that trying may still cost

    def choose(self, expected: Sequence[Sequence[float]]) -> int:
        """The draft length for rows whose first 1, 2, … drafts promise so many tokens; some may have no drafts."""
        rows, times = len(expected), self.seconds
        longest = max(map(len, expected), default=0)
        if not longest or self._loss_budget <= 0 or not times.measured():
            return 0
        times.update()
        tokens = [float(rows)] * (longest + 1)
        for promised in expected:
            for k in range(1, longest + 1) if promised else ():
                tokens[k] += promised[min(k, len(promised)) - 1]
        curve = times.curve
        # The best of many noisy figures seems better than it is, so drafts that hardly gain anything are left out.
        best = max(range(longest + 1), key=lambda k: tokens[k] / curve[rows * (1 + k)] / (LEAST_SPEEDUP if k else 1))
        hoped = times.at_least()
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
        places = rows * width
        if places >= len(self.seconds.curve):
            return  # a request asked for a longer draft
        typical = self.seconds.curve[places] if self.seconds.known(places) else 0.0
        self.seconds.add(places, seconds)
        self._exploration_budget = min(EXPLORATION_BUDGET, self._exploration_budget + EXPLORATION_SHARE)
        if width == 1:
            self._loss_budget = max(self._loss_budget, min(ALLOWANCE, self._loss_budget + MAX_LOSS))
            return
        plain = self.seconds.curve[rows]
        if typical and plain:
            spent = min(seconds, OUTLIER * typical) / plain
            won = (1 + MAX_LOSS) * committed / rows - spent
            self._loss_budget = min(SURPLUS, self._loss_budget + won)


def _stated(proposal: Proposal) -> Sequence[float]:
    return proposal.probabilities or tuple(repeat(1.0, len(proposal.tokens)))
