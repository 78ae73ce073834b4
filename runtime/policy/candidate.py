"""Proposals with the probabilities of their tokens, and which of them are worth most for texts that share a pass."""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from spectool.runtime.drafters.drafter import NOTHING, Proposal, accepted_length

LEVELS = 5  # of how sure look-ups are: what asking a model is worth differs between them


class Candidate(NamedTuple):
    """A proposal, and the probability of each of its tokens if those before it are right."""

    proposal: Proposal
    probabilities: Sequence[float]

    @property
    def first(self) -> float:
        """The probability of its first token; 0 if there is none."""
        return self.probabilities[0] if self.probabilities else 0.0

    @property
    def believed(self) -> Proposal:
        """The proposal with these probabilities, in place of those that its drafter states."""
        proposal = self.proposal
        return Proposal(proposal.tokens, proposal.source, tuple(self.probabilities), proposal.distribution)

    def expected(self, longest: int) -> list[float]:
        """Accepted tokens on average, by draft length, shape [longest + 1].

        >>> Candidate(NOTHING, [0.5, 0.5]).expected(3)
        [0.0, 0.5, 0.75, 0.75]
        """
        found = [0.0, *accumulate(accumulate(self.probabilities[:longest], mul))]
        return found + [found[-1]] * (longest + 1 - len(found))

    def cut(self, length: int) -> "Candidate":
        """The candidate of the first ``length`` tokens."""
        if length >= len(self.proposal.tokens):
            return self
        return Candidate(self.proposal.cut(length), self.probabilities[:length])

    def accepted(self, committed: Sequence[int]) -> float:
        """How many of its tokens were right; those that outlast ``committed`` as far as they were promised."""
        right = accepted_length(self.proposal.tokens, committed)
        rest = self.probabilities[right:] if right == len(committed) else ()
        return right + Candidate(NOTHING, rest).expected(len(rest))[-1]


NO_CANDIDATE = Candidate(NOTHING, ())


def surest(offered: Sequence[Candidate]) -> Candidate:
    """The candidate whose first token is most probable."""
    return max(offered, key=lambda each: each.first, default=NO_CANDIDATE)


def level_of(offered: Sequence[Candidate]) -> int:
    """How sure the surest of some candidates is of its first token, from 0 to ``LEVELS`` - 1."""
    return min(LEVELS - 1, int(LEVELS * surest(offered).first))


def best(
    texts: Sequence[Sequence[Candidate]], costs: Sequence[float], rate: float
) -> tuple[int, Sequence[Candidate], float]:
    """The draft length that is worth most for texts in one pass, the best candidate of each, and the worth.

    The worth is in tokens of one text. ``costs`` has the plain passes of the pass by draft length, in each of which
    ``rate`` tokens are usual. A pass has the same number of rows for every text.
    """
    longest = min(len(costs) - 1, max([len(each.probabilities) for text in texts for each in text], default=0))
    length, worth = 0, 0.0
    if longest:
        offered = [text or (NO_CANDIDATE,) for text in texts]
        expected = [[each.expected(longest) for each in text] for text in offered]
        most = [text[0] if len(text) == 1 else [*map(max, *text)] for text in expected]  # of each, by draft length
        sums = most[0] if len(most) == 1 else [*map(sum, zip(*most, strict=True))]
        for k in range(1, longest + 1):
            found = sums[k] / len(texts) - rate * (costs[k] - costs[0])
            if found > worth or (length and found == worth):
                length, worth = k, found
    if not length:
        return 0, [NO_CANDIDATE] * len(texts), 0.0
    places = [tokens.index(max(tokens)) for tokens in ([each[length] for each in text] for text in expected)]
    return length, [text[at] for text, at in zip(offered, places, strict=True)], worth


def cost_of(proposals: Sequence[Proposal], costs: Sequence[float]) -> float:
    """Plain passes of a pass with these proposals, given ``costs`` by draft length."""
    return costs[max([len(proposal.tokens) for proposal in proposals])]


def level_rows(costs: list[float], least: int) -> list[float]:
    """Costs by draft length where as many drafts as ``least`` have their rows in any case."""
    return [costs[least]] * least + costs[least:] if least else costs
