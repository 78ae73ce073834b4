"""Several drafters behind one: what is likely to gain most is proposed, and a model is asked only where it pays.

Let the tokens of a proposal be right with probabilities ``p1 .. pk``, each given those before it. Then
``p1 + p1 p2 + ... + p1 .. pk`` of them are accepted on average. Drafters that look things up say how sure they are of
each token; how far that is to be believed is learnt. Of a model only the share ``a`` of right tokens is known. It would
get ``a + a^2 + ... + a^k`` accepted, at ``k`` passes of its own. It is asked when

    (1 + a + ... + a^k) / (1 + k cost)  >  1 + p1 + ... + p1 .. pm       for some k

where the cost is that of a draft token in target passes. What it then guesses is continued by a look-up, which
finishes the word that it has begun.

What a model has cost beyond what it has brought is summed up, its reading of prompts included. Beyond `ALLOWANCE`
target passes, and `MARGIN` of those since, it is not asked, and the look-ups beside it go on alone.

Source: expected accepted length and its cost: Leviathan et al. 2023, sections 3.1 and 3.3.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, repeat
from operator import mul
from time import perf_counter
from typing import TYPE_CHECKING

from spectool.runtime.decoding.drafter import Drafter, Proposal, accepted_length
from spectool.runtime.drafters.acceptance import Acceptance

if TYPE_CHECKING:
    from spectool.runtime.decoding.rejection import Draw

PRIOR = 0.5  # of a token being right, or of what a drafter says of it
_PRIOR_TOKENS = 4.0  # observed tokens that the prior counts for
_KEPT = 0.98  # of what was learnt, from cycle to cycle: texts change, and what was useless is tried again
ALLOWANCE = 4.0  # target passes that a model may cost beyond what it has brought
MARGIN = 0.02  # the same for each pass since
_MOST = 32.0  # passes won that may be lost again, or lost that must be made up for
_UNMEASURED = 0.1  # cost of a draft token before the first is measured
_LATEST = 0.1  # weight of the latest measurement


def expected_accepted_length(probabilities: Iterable[float]) -> float:
    """Return how many draft tokens are accepted on average.

    Args:
        probabilities: That a token is right when all before it are, 0 to 1, for each of them.

    >>> expected_accepted_length([0.5, 0.5])
    0.75
    >>> expected_accepted_length([1.0, 1.0, 0.5])
    2.5
    """
    return sum(accumulate(probabilities, mul), 0.0)


def best_draft_length(acceptance: float, cost: float, most: int) -> tuple[int, float]:
    """Return how many draft tokens give most committed tokens in the time of a target pass, and how many these are.

    Args:
        acceptance: Probability that a token is accepted when all before it were, 0 to 1.
        cost: Time of a draft token, in target passes.
        most: Draft tokens at most.

    >>> best_draft_length(0.5, 0.25, 8)
    (1, 1.2)
    >>> best_draft_length(0.1, 0.25, 8)
    (0, 1.0)
    """
    committed = accumulate(acceptance**length for length in range(most + 1))
    rates = [tokens / (1.0 + length * cost) for length, tokens in enumerate(committed)]
    rate = max(rates)
    return rates.index(rate), rate


@dataclass(slots=True)
class _Source:
    """One member and what became of its proposals."""

    drafter: Drafter  # the member
    # right tokens, of those that it was sure of; where it says nothing, of all tokens judged
    acceptance: Acceptance = field(default_factory=lambda: Acceptance(PRIOR, _PRIOR_TOKENS))
    proposal: Proposal = field(default_factory=lambda: Proposal((), ""))  # that of this cycle
    fed: bool = False  # whether it was asked before: a model reads the prompt at the first time
    allowance: float = ALLOWANCE  # target passes that it may still cost; counts for models only

    def probabilities(self, proposal: Proposal) -> list[float]:
        """Return the probability of each token of a proposal of this member."""
        return [min(1.0, self.acceptance.rate * stated) for stated in _stated(proposal)]

    def learn(self, committed: Sequence[int]) -> None:
        """Count how many tokens of the pending proposal were right, and the first wrong one."""
        self.acceptance.fade(_KEPT)
        right = accepted_length(self.proposal.tokens, committed)
        # A proposal that outlasts the committed tokens was not contradicted.
        judged = min(right + 1, len(self.proposal.tokens), len(committed))
        self.acceptance.right += right
        self.acceptance.asked += sum(islice(_stated(self.proposal), judged))
        self.proposal = Proposal((), "")

    def book(self, passes: float) -> None:
        """Note that it won so many target passes; below 0: that it cost them."""
        self.allowance = max(-_MOST, min(_MOST, self.allowance + passes))


class HybridDrafter(Drafter):
    """Asks cheap drafters first, and a draft model where that promises more tokens in the same time.

    A member that raises is switched off with a warning until the next ``start``; the others
    go on. Drafters whose tokens cost a pass are the expensive ones; those that can
    extend go on with what these have guessed.

    Attributes:
        drafters: The members.
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        draft_cost: float | None = None,
        *,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """Combine ``drafters``; on equal expectations the earlier one wins.

        Args:
            drafters: Members.
            draft_cost: Time of a draft token of a model, in target passes; None measures it.
            clock: Seconds.
        """
        self.drafters = tuple(drafters)
        # With a cheap member, proposals may come for free.
        self.costs_a_pass = all(drafter.costs_a_pass for drafter in self.drafters)
        self.cache = next((drafter.cache for drafter in self.drafters if drafter.cache is not None), None)
        self.name = "hybrid(" + ", ".join(drafter.name for drafter in self.drafters) + ")"
        self._members = [_Source(drafter) for drafter in self.drafters]
        self._sources: list[_Source] = []  # those that have not failed
        self._draft_cost = draft_cost
        self._clock = clock
        self._draft_seconds = self._pass_seconds = 0.0  # of a draft token, of a target pass
        self._proposed_at: float | None = None
        # The model asked in this cycle, what was proposed by it, and how many tokens look-ups would have had accepted.
        self._bet: tuple[_Source, Proposal, float] | None = None

    def draw_with(self, draw: "Draw | None") -> None:
        """Pass it on to the members that can draw."""
        for drafter in self.drafters:
            drafter.draw_with(draw)

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a generation with all members, also those switched off in an earlier one; what was learnt stays."""
        self._sources, self._proposed_at, self._bet = [], None, None
        for source in self._members:
            source.proposal, source.fed = Proposal((), ""), False
            source.drafter.report = self.report
            try:
                source.drafter.start(prompt)
            except Exception as error:
                self.report(source.drafter, error)
            else:
                self._sources.append(source)

    def propose(self, limit: int) -> Proposal:
        """Return the best proposal of at most ``limit`` tokens, under its member's name."""
        best, expected = self._look_up(limit)
        source, length = self._worth_asking(limit, 1.0 + expected)
        if source is not None:
            guess, likely = self._extend(source, self._ask(source, length), limit)
            # Drafts once drawn are used, whatever they are: the output would lean towards those that please.
            if guess.distribution is not None or likely > expected:
                best, self._bet = guess, (source, guess, expected)
        self._proposed_at = self._clock()
        return best

    def commit(self, tokens: Sequence[int]) -> None:
        """Commit the tokens to every member, and learn from what they had proposed."""
        if self._proposed_at is not None:
            self._pass_seconds = _averaged(self._pass_seconds, self._clock() - self._proposed_at)
            self._proposed_at = None
        self._draft_seconds *= _KEPT  # until it is measured anew
        if self._bet is not None:
            model, guess, expected = self._bet
            model.book(accepted_length(guess.tokens, tokens) - expected)
            self._bet = None
        for source in tuple(self._sources):
            source.book(min(MARGIN, max(0.0, ALLOWANCE - source.allowance)))
            source.learn(tokens)
            try:
                source.drafter.commit(tokens)
            except Exception as error:
                self._switch_off(source, error)

    def trust(self) -> dict[str, float]:
        """Return by member name how much of what it proposed was right, in parts of what it was sure of."""
        return {source.drafter.name: source.acceptance.rate for source in self._sources}

    @property
    def draft_cost(self) -> float:
        """Time of a draft token of a model, in target passes."""
        if self._draft_cost is not None:
            return self._draft_cost
        measured = self._draft_seconds and self._pass_seconds
        return self._draft_seconds / self._pass_seconds if measured else _UNMEASURED

    def _look_up(self, limit: int) -> tuple[Proposal, float]:
        """Ask the cheap members; return the best proposal and its expected accepted length."""
        best, most = Proposal((), self.name), 0.0
        for source in [source for source in self._sources if not source.drafter.costs_a_pass]:
            source.proposal = self._asked(source, limit)
            expected = expected_accepted_length(source.probabilities(source.proposal))
            if expected > most:
                best, most = source.proposal, expected
        return best, most

    def _worth_asking(self, limit: int, rate: float) -> tuple[_Source | None, int]:
        """Return the model that promises most, above ``rate`` tokens in the time of a target pass, and for how many."""
        found: tuple[_Source | None, int] = (None, 0)
        for source in self._sources:
            if source.drafter.costs_a_pass and source.allowance > 0:
                length, promised = best_draft_length(source.acceptance.rate, self.draft_cost, limit)
                if promised > rate:
                    found, rate = (source, length), promised
        return found

    def _ask(self, source: _Source, limit: int) -> Proposal:
        """Ask a model, and measure what a token of it costs."""
        begun = self._clock()
        source.proposal = self._asked(source, limit)
        seconds, count = self._clock() - begun, len(source.proposal.tokens)
        if source.fed and count:
            self._draft_seconds = _averaged(self._draft_seconds, seconds / count)
        if self._draft_cost is not None:
            source.book(-count * self._draft_cost)
        elif self._draft_seconds and self._pass_seconds:  # the first prompt is read on trust
            source.book(-seconds / self._pass_seconds)
        source.fed = True
        return source.proposal

    def _extend(self, source: _Source, guess: Proposal, limit: int) -> tuple[Proposal, float]:
        """Continue a model's guess by look-up; return it and its expected accepted length."""
        probabilities = source.probabilities(guess)
        left = limit - len(guess.tokens)
        best, most = guess, expected_accepted_length(probabilities)
        if not guess.tokens or left <= 0:
            return best, most
        for other in tuple(self._sources):
            more = self._asked(other, left, guess.tokens)
            expected = expected_accepted_length([*probabilities, *other.probabilities(more)])
            if expected > most:
                tokens, name = (*guess.tokens, *more.tokens), f"{guess.source}+{more.source}"
                best, most = Proposal(tokens, name, distribution=guess.distribution), expected
        return best, most

    def _asked(self, source: _Source, limit: int, guessed: Sequence[int] = ()) -> Proposal:
        """Return what a member proposes after what another has guessed; nothing from one that fails and is dropped."""
        drafter = source.drafter
        try:
            return (drafter.extend(guessed, limit) if guessed else drafter.propose(limit)).cut(limit)
        except Exception as error:
            self._switch_off(source, error)
            return Proposal((), source.drafter.name)

    def _switch_off(self, source: _Source, error: Exception) -> None:
        """Drop ``source`` until the next ``start``."""
        self.report(source.drafter, error)
        self._sources.remove(source)


def _stated(proposal: Proposal) -> Iterable[float]:
    """Return how sure a drafter is of each of its tokens: wholly, where it does not say."""
    return proposal.probabilities or repeat(1.0, len(proposal.tokens))


def _averaged(average: float, latest: float) -> float:
    """Return the running average with the latest measurement; the first one stands for itself."""
    return average + _LATEST * (latest - average) if average else latest
