"""Several drafters in one: what is likely to gain most is proposed, and a model is asked only where it pays.

Let the tokens of a proposal be right with probabilities ``p1 .. pk``, each given those before it. Then
``p1 + p1 p2 + ... + p1 .. pk`` of them are accepted on average. Drafters that look things up say how sure they are of
each token; how far that can be believed is learnt. Of a model only the share ``a`` of right tokens is known. It would
get ``a + a^2 + ... + a^k`` accepted, at ``k`` passes of its own. It is asked when

    (1 + a + ... + a^k) / (1 + k cost)  >  1 + p1 + ... + p1 .. pm       for some k

where the cost is that of a draft token in target passes. Its guess is then continued by a look-up, which finishes the
word that it has begun.

What a model has cost beyond what it has brought is charged to its budget, including its reading of prompts. Beyond
`BUDGET` target passes, and `LOSS_PER_PASS` of those since, it is not asked, and the look-ups go on alone.

Source: expected accepted length and its cost: Leviathan et al. 2023, sections 3.1 and 3.3.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice, repeat
from operator import mul
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from spectool.runtime.decoding.drafter import Drafter, Proposal, accepted_length

if TYPE_CHECKING:
    from spectool.runtime.decoding.verification import Draw

_Result = TypeVar("_Result")
_NOTHING = Proposal((), "")
_PRIOR_OBSERVED = 4.0  # tokens that the prior counts for
_PRIOR_RIGHT = 2.0  # of them, tokens that were right
_DECAY = 0.98  # weight of what was learnt, from cycle to cycle: texts change, and what was useless is tried again
BUDGET = 4.0  # target passes that a model may cost beyond what it has brought
LOSS_PER_PASS = 0.02  # the same for each pass since
_MOST = 32.0  # passes won that may be lost again, or lost that must be made up for
_UNMEASURED = 0.1  # cost of a draft token before the first is measured
_LATEST = 0.1  # weight of the latest measurement


def expected_accepted_length(probabilities: Iterable[float]) -> float:
    """Number of draft tokens accepted on average, each with its probability given those before it.

    >>> expected_accepted_length([0.5, 0.5])
    0.75
    >>> expected_accepted_length([1.0, 1.0, 0.5])
    2.5
    """
    return sum(accumulate(probabilities, mul), 0.0)


def best_draft_length(acceptance: float, cost: float, most: int) -> tuple[int, float]:
    """The draft length with most committed tokens in the time of a target pass, and how many these are.

    ``cost`` is the time of a draft token in target passes, and ``most`` the maximum length.

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
class _Member:
    """A drafter, and what became of its proposals."""

    drafter: Drafter
    right: float = _PRIOR_RIGHT  # tokens that were right, the prior included
    observed: float = _PRIOR_OBSERVED  # tokens judged, each counted as its stated probability
    proposal: Proposal = _NOTHING  # of this cycle
    asked: bool = False  # in this generation: a model reads the prompt the first time
    budget: float = BUDGET  # target passes that it may still cost; for models only

    @property
    def acceptance(self) -> float:
        """Right tokens as a share of those judged."""
        return self.right / self.observed

    def probabilities(self, proposal: Proposal) -> list[float]:
        """The probability of each token of a proposal of this member."""
        acceptance = self.acceptance
        return [min(1.0, acceptance * stated) for stated in _stated(proposal)]

    def learn(self, committed: Sequence[int]) -> None:
        """Count how many tokens of the proposal were right, and the first wrong one."""
        self.right = _PRIOR_RIGHT + _DECAY * (self.right - _PRIOR_RIGHT)
        self.observed = _PRIOR_OBSERVED + _DECAY * (self.observed - _PRIOR_OBSERVED)
        right = accepted_length(self.proposal.tokens, committed)
        # A proposal that outlasts the committed tokens was not contradicted.
        judged = min(right + 1, len(self.proposal.tokens), len(committed))
        self.right += right
        self.observed += sum(islice(_stated(self.proposal), judged))
        self.proposal = _NOTHING

    def charge(self, passes: float) -> None:
        """Charge what it cost in target passes; below 0, what it won."""
        self.budget = max(-_MOST, min(_MOST, self.budget - passes))


class HybridDrafter(Drafter):
    """Asks cheap drafters first, and a draft model where that promises more tokens in the same time.

    On equal expectations the earlier drafter wins. One that raises is switched off with a warning until the next
    ``start``.

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
        """Combine ``drafters``; ``draft_cost`` is the time of a model's draft token in passes, None to measure it."""
        self.drafters = tuple(drafters)
        # A look-up among the members may propose for free.
        self.costs_a_pass = all(drafter.costs_a_pass for drafter in self.drafters)
        self.cache = next((drafter.cache for drafter in self.drafters if drafter.cache is not None), None)
        self.name = "hybrid(" + ", ".join(drafter.name for drafter in self.drafters) + ")"
        self._members = [_Member(drafter) for drafter in self.drafters]
        self._working: list[_Member] = []  # those that have not failed
        self._draft_cost = draft_cost
        self._clock = clock
        self._draft_seconds = self._pass_seconds = 0.0  # of a draft token, of a target pass
        self._proposed_at: float | None = None
        # The model whose guess was proposed, that proposal, and how many tokens look-ups would have had accepted.
        self._pending_ask: tuple[_Member, Proposal, float] | None = None

    def draw_with(self, draw: "Draw | None") -> None:
        """Pass it on to the members, of which some can draw."""
        for drafter in self.drafters:
            drafter.draw_with(draw)

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a generation with all members, also those switched off in an earlier one; what was learnt stays."""
        self._working, self._proposed_at, self._pending_ask = list(self._members), None, None
        for member in self._members:
            member.proposal, member.asked = _NOTHING, False
            member.drafter.report = self.report
            self._guarded(member, partial(member.drafter.start, prompt))

    def propose(self, limit: int) -> Proposal:
        """The best proposal of at most ``limit`` tokens, under its member's name."""
        best, expected = Proposal((), self.name), 0.0
        for member in [member for member in self._working if not member.drafter.costs_a_pass]:
            member.proposal = self._asked(member, limit)
            likely = expected_accepted_length(member.probabilities(member.proposal))
            if likely > expected:
                best, expected = member.proposal, likely
        model, length = self._worth_asking(limit, 1.0 + expected)
        if model is not None:
            guess, likely = self._extended(model, self._ask(model, length), limit)
            # Drafts once drawn are used, no matter what they are: the output would lean towards those that please.
            if guess.distribution is not None or likely > expected:
                best, self._pending_ask = guess, (model, guess, expected)
        self._proposed_at = self._clock()
        return best

    def extend(self, tokens: Sequence[int], limit: int) -> Proposal:
        """What the best of the look-ups expects after ``tokens``; no model is asked."""
        members = [member for member in self._working if not member.drafter.costs_a_pass]
        found = [(member, self._asked(member, limit, tokens)) for member in members]
        likely = [expected_accepted_length(member.probabilities(proposal)) for member, proposal in found]
        return found[likely.index(max(likely))][1] if found else Proposal((), self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        """Commit the tokens to every member, and learn from what they had proposed."""
        if self._proposed_at is not None:
            self._pass_seconds = _averaged(self._pass_seconds, self._clock() - self._proposed_at)
            self._proposed_at = None
        self._draft_seconds *= _DECAY  # until it is measured again
        if self._pending_ask is not None:
            model, guess, expected = self._pending_ask
            model.charge(expected - accepted_length(guess.tokens, tokens))
            self._pending_ask = None
        for member in tuple(self._working):
            member.charge(-min(LOSS_PER_PASS, max(0.0, BUDGET - member.budget)))
            member.learn(tokens)
            self._guarded(member, partial(member.drafter.commit, tokens))

    def acceptance(self) -> dict[str, float]:
        """By member name, the tokens that were right as a share of those it was sure of."""
        return {member.drafter.name: member.acceptance for member in self._working}

    @property
    def draft_cost(self) -> float:
        """Time of a draft token of a model, in target passes."""
        if self._draft_cost is not None:
            return self._draft_cost
        measured = self._draft_seconds and self._pass_seconds
        return self._draft_seconds / self._pass_seconds if measured else _UNMEASURED

    def _worth_asking(self, limit: int, rate: float) -> tuple[_Member | None, int]:
        """The model that promises most, above ``rate`` tokens in the time of a target pass, and for how many tokens."""
        found: tuple[_Member | None, int] = (None, 0)
        for member in self._working:
            if member.drafter.costs_a_pass and member.budget > 0:
                length, promised = best_draft_length(member.acceptance, self.draft_cost, limit)
                if promised > rate:
                    found, rate = (member, length), promised
        return found

    def _ask(self, model: _Member, limit: int) -> Proposal:
        """What a model proposes; the time of a token is measured and charged."""
        begun = self._clock()
        model.proposal = self._asked(model, limit)
        seconds, count = self._clock() - begun, len(model.proposal.tokens)
        if model.asked and count:
            self._draft_seconds = _averaged(self._draft_seconds, seconds / count)
        if self._draft_cost is not None:
            model.charge(count * self._draft_cost)
        elif self._draft_seconds and self._pass_seconds:  # the first prompt is read on trust
            model.charge(seconds / self._pass_seconds)
        model.asked = True
        return model.proposal

    def _extended(self, model: _Member, guess: Proposal, limit: int) -> tuple[Proposal, float]:
        """A model's guess, continued by the best look-up, and its expected accepted length."""
        probabilities = model.probabilities(guess)
        best, most = guess, expected_accepted_length(probabilities)
        left = limit - len(guess.tokens)
        if guess.tokens and left > 0:
            for other in tuple(self._working):
                more = self._asked(other, left, guess.tokens)
                expected = expected_accepted_length([*probabilities, *other.probabilities(more)])
                if expected > most:
                    tokens, name = (*guess.tokens, *more.tokens), f"{guess.source}+{more.source}"
                    best, most = Proposal(tokens, name, distribution=guess.distribution), expected
        return best, most

    def _asked(self, member: _Member, limit: int, guessed: Sequence[int] = ()) -> Proposal:
        """A member's proposal, after ``guessed`` of another one if any; an empty one from a member that fails."""
        drafter = member.drafter
        ask = partial(drafter.extend, guessed) if guessed else drafter.propose
        return self._guarded(member, lambda: ask(limit).cut(limit)) or Proposal((), drafter.name)

    def _guarded(self, member: _Member, act: Callable[[], _Result]) -> _Result | None:
        """Let a member act; one that fails is switched off until the next ``start``."""
        try:
            return act()
        except Exception as error:
            self.report(member.drafter, error)
            self._working.remove(member)
            return None


def _stated(proposal: Proposal) -> Iterable[float]:
    """How sure a drafter is of each of its tokens: entirely, where it does not say."""
    return proposal.probabilities or repeat(1.0, len(proposal.tokens))


def _averaged(average: float, latest: float) -> float:
    """The running average with the latest measurement; the first one is taken as it is."""
    return average + _LATEST * (latest - average) if average else latest
