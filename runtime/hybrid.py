"""Several drafters behind one: the proposal with the highest expected accepted length wins.

A source whose tokens are accepted with probability ``a`` each, independently, gets
``a + a^2 + ... + a^k = a (1 - a^k) / (1 - a)`` of ``k`` tokens accepted on average. ``a`` is
estimated for each source from its own proposals, also from those that were not chosen: the
committed tokens tell how good they would have been.

Source: expected accepted length: Leviathan et al. 2023, section 3.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from spectool.runtime.drafter import Drafter, Proposal, accepted_length, warn_switched_off

# Beta(2, 2): one half, worth four observed tokens.
PRIOR_ACCEPTED = 2.0
PRIOR_REJECTED = 2.0


def expected_accepted_length(acceptance: float, count: int) -> float:
    """Return how many of ``count`` draft tokens are accepted on average.

    Args:
        acceptance: Probability that a token is accepted when all before it were, 0 to 1.
        count: Draft tokens.

    >>> expected_accepted_length(0.5, 2)
    0.75
    >>> expected_accepted_length(1.0, 3)
    3.0
    """
    if acceptance >= 1.0:
        return float(count)
    return acceptance * (1.0 - acceptance**count) / (1.0 - acceptance)


@dataclass(slots=True)
class _Source:
    """One member and what became of its proposals in this generation."""

    drafter: Drafter
    accepted: float = PRIOR_ACCEPTED
    rejected: float = PRIOR_REJECTED
    proposal: Proposal = field(default_factory=lambda: Proposal((), ""))

    @property
    def acceptance(self) -> float:
        """Posterior mean of the acceptance probability."""
        return self.accepted / (self.accepted + self.rejected)

    @property
    def costs_a_pass(self) -> bool:
        """Whether each of its draft tokens costs a forward pass of a model."""
        return bool(getattr(self.drafter, "costs_a_pass", False))

    def learn(self, committed: Sequence[int]) -> None:
        """Count how many tokens of the pending proposal were right, and the first wrong one."""
        tokens = self.proposal.tokens
        right = accepted_length(tokens, committed)
        self.accepted += right
        # A proposal that outlasts the committed tokens was not contradicted.
        if right < min(len(tokens), len(committed)):
            self.rejected += 1.0
        self.proposal = Proposal((), "")


class HybridDrafter:
    """Asks cheap drafters first and a draft model only when none of them has a guess.

    A member that raises is switched off with a warning until the next ``start``; the others
    go on. Drafters with the attribute ``costs_a_pass = True`` are the expensive ones.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        """Combine ``drafters``; on equal expectations the earlier one wins."""
        self._drafters = tuple(drafters)
        self.name = "hybrid(" + ", ".join(drafter.name for drafter in self._drafters) + ")"
        self._sources: list[_Source] = []

    @property
    def costs_a_pass(self) -> bool:
        """Whether all members do: with a cheap member, proposals may come for free."""
        return all(getattr(drafter, "costs_a_pass", False) for drafter in self._drafters)

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a generation with all members, also those switched off in an earlier one."""
        self._sources = []
        for drafter in self._drafters:
            try:
                drafter.start(prompt)
            except Exception as error:
                warn_switched_off(drafter, error)
            else:
                self._sources.append(_Source(drafter))

    def propose(self, limit: int) -> Proposal:
        """Return the best proposal of at most ``limit`` tokens, under its member's name."""
        best = self._best([source for source in self._sources if not source.costs_a_pass], limit)
        if best is None:
            best = self._best([source for source in self._sources if source.costs_a_pass], limit)
        return best or Proposal((), self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        """Tell every member, and learn from what they had proposed."""
        for source in tuple(self._sources):
            source.learn(tokens)
            try:
                source.drafter.commit(tokens)
            except Exception as error:
                self._switch_off(source, error)

    def acceptance(self) -> dict[str, float]:
        """Return the estimated acceptance probability by member name."""
        return {source.drafter.name: source.acceptance for source in self._sources}

    def _best(self, sources: Sequence[_Source], limit: int) -> Proposal | None:
        """Ask ``sources`` and return the most promising proposal; None when all are empty."""
        best: Proposal | None = None
        best_value = 0.0
        for source in sources:
            try:
                proposal = source.drafter.propose(limit)
                tokens = tuple(proposal.tokens)[:limit]
            except Exception as error:
                self._switch_off(source, error)
                continue
            source.proposal = Proposal(tokens, proposal.source)
            value = expected_accepted_length(source.acceptance, len(tokens))
            if value > best_value:
                best, best_value = source.proposal, value
        return best

    def _switch_off(self, source: _Source, error: Exception) -> None:
        """Drop ``source`` until the next ``start``."""
        warn_switched_off(source.drafter, error)
        self._sources.remove(source)
