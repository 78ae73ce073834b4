"""One drafter or several in one: in every cycle, the member and the length that promise most for their cost.

A proposal is worth the tokens that a cycle with it is expected to commit, less those that the text would gain in the
same time at its usual rate:

    worth = tokens - rate * (draft seconds + seconds of a pass over its rows + caller seconds * tokens)

The ratio of tokens to seconds would be the wrong measure: it favours a slow proposal that is a little better than
nothing over a quick plain pass, after which a look-up may know what follows.

Drafters that look things up say how sure they are of each token, and cost nothing; how far that can be believed is
learnt. Of a model the `DraftRecord` is known: how often it is right at each position, and what it takes. There are two
of them, because a model is right more often where look-ups have a guess as well. It is asked when it promises more than
the best look-up does, for as many tokens as promise most. Its guess is then continued by look-up. Reading what it has
missed, the prompt at first, has to pay within the rest of the text, which is taken to be as long as earlier ones were.

What a model has lost against the best look-up, or against plain decoding where there is none, is taken from its
`LossAccount`. If that is empty it is not asked, and the look-ups go on alone. What look-ups lose is for the controller
to bound, as with any drafter.

Where the draft length is fixed, or the text shares its passes with others, no controller knows what passes cost. Then
the hybrid measures passes itself, and takes those over more rows to cost as much.

Source: expected accepted length and its cost: Leviathan et al. 2023, sections 3.1 and 3.3; comparing with the usual
rate: Charnov 1976, the marginal value theorem.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from spectool.runtime.decoding.drafter import NOTHING, Drafter, Proposal, accepted_length
from spectool.runtime.draft_length.record import (
    ALLOWANCE,
    FADING,
    MAX_DRAFT_TOKENS,
    DraftRecord,
    LossAccount,
    StatedAcceptance,
)
from spectool.runtime.draft_length.timings import OUTLIER
from spectool.runtime.drafters.prices import Prices, expected_accepted_length

if TYPE_CHECKING:
    from spectool.runtime.sampling.verification import Draw

_Result = TypeVar("_Result")
_DECAY = 0.98  # weight of what was learnt, from cycle to cycle: texts change, and what was useless is tried again
_HOPED = 0.9  # acceptance of one more first token of a model, so that one not asked for long is tried again
_CAUTION = 3.0  # times the cost of a draft token, in passes, by which that token counts for less, down to 0.1
_UNMEASURED = 0.1  # cost of a draft token in plain passes before it is measured
_RATE_PRIOR = 16.0  # plain cycles that the usual rate counts for at first
_TEXT = 64.0  # cycles of a text before the first one has ended
_PART = 0.5  # of what drafting may lose, that a model may lose of what look-ups win
_MISSED = 8  # missed tokens that are read at the cost of a usual proposal


@dataclass(eq=False)
class _Member:
    """A drafter that looks things up, and what became of its proposals."""

    drafter: Drafter
    acceptance: StatedAcceptance = field(default_factory=partial(StatedAcceptance, prior=4.0, share=0.9))
    proposal: Proposal = NOTHING  # of this cycle
    reads: bool = True  # whether it was started in this generation, and is given what is committed

    def begin(self, prompt: int) -> None:
        """Begin a generation after a ``prompt`` of this many tokens."""
        self.proposal = NOTHING

    def probabilities(self, proposal: Proposal) -> list[float]:
        """The probability of each token of a proposal of this member."""
        return self.acceptance.probabilities(proposal.stated)

    def learn(self, committed: Sequence[int]) -> None:
        """Count how many tokens of the proposal were right, and the first wrong one."""
        right = accepted_length(self.proposal.tokens, committed)
        # A proposal that outlasts the committed tokens was not contradicted.
        self.acceptance.learn(self.proposal.stated[: min(right + 1, len(committed))], right)
        self.proposal = NOTHING


@dataclass(eq=False)
class _Model(_Member):
    """A draft model, which is started when it is first asked."""

    asked: int = 0  # tokens that it was asked for in this cycle
    alone: DraftRecord = field(default_factory=partial(DraftRecord, fills=1.0))  # where look-ups propose nothing
    contested: DraftRecord = field(default_factory=partial(DraftRecord, fills=1.0))  # where they do
    record: DraftRecord = field(init=False)  # the one of the two that holds in this cycle
    losses: LossAccount = field(default_factory=partial(LossAccount, _PART))
    missed: int = 0  # tokens that it has not read
    unasked: int = 0  # cycles since it was asked
    invested: float = 0.0  # plain passes that reading took it in this generation, which are to come back
    gain: float | None = None  # what asking it would have gained on average, in tokens, as far as it was expected

    def __post_init__(self) -> None:
        self.record, self.contested.times = self.alone, self.alone.times

    def begin(self, prompt: int) -> None:
        """Begin a generation without reading the prompt."""
        super().begin(prompt)
        self.asked, self.missed, self.invested, self.reads = 0, prompt, 0.0, False
        self.record.times.begin()

    def probabilities(self, proposal: Proposal) -> list[float]:
        """The probability of each token, by its position."""
        accepted, proposed = self.record.accepted.steps, self.record.proposed.steps
        each = [min(1.0, a / max(p, a, 1e-9)) for a, p in zip(accepted, proposed, strict=True)]
        return (each + each[-1:] * len(proposal.tokens))[: len(proposal.tokens)]

    def learn(self, committed: Sequence[int]) -> None:
        """Learn also how far the proposal got, if it was asked for one."""
        right, count = accepted_length(self.proposal.tokens, committed), len(self.proposal.tokens)
        super().learn(committed)
        self.missed += len(committed)
        self.unasked += 1
        if self.asked:
            asked = right if right == len(committed) < self.asked else self.asked
            self.record.observe(asked, min(count, asked), right, _DECAY * FADING ** (self.unasked - 1))
            self.record.update()
            self.missed, self.unasked, self.asked = len(committed), 0, 0


class HybridDrafter(Drafter):
    """Proposes what promises most for its cost: of look-ups, of a draft model, or of both, one after the other.

    One that raises is switched off with a warning until the next ``start``. A model is started when it is first asked.

    Attributes:
        drafters: The members.
    """

    chooses_length = True

    def __init__(self, drafters: Sequence[Drafter], *, clock: Callable[[], float] = perf_counter) -> None:
        """Combine ``drafters``, whose seconds are those of ``clock``."""
        self.drafters = tuple(drafters)
        # A look-up among the members may propose for free.
        self.costs_a_pass = all(drafter.costs_a_pass for drafter in self.drafters)
        self.cache = next((drafter.cache for drafter in self.drafters if drafter.cache is not None), None)
        names = ", ".join(drafter.name for drafter in self.drafters)
        self.name = f"hybrid({names})" if len(self.drafters) > 1 else names
        self._members = [_Model(drafter) if drafter.costs_a_pass else _Member(drafter) for drafter in self.drafters]
        self._look_ups, self._models = list[_Member](), list[_Model]()  # those that have not failed
        self._clock = clock
        self._pass_seconds = 0.0  # of a target pass, where no controller knows
        self._proposed_at: float | None = None
        self._recent_tokens, self._recent_passes = _RATE_PRIOR, _RATE_PRIOR  # passes: plain ones, in the same time
        self._cycles = 0  # of this generation
        self._usual_cycles = _TEXT  # of a generation, on average
        self._prices = Prices((), 0.0, 0.0)
        self._unread: list[int] | None = None  # the text, as long as there is a model that was not started with it
        self._spent = 0.0  # seconds of drafting in this cycle
        self._rows = 1  # of the pass of this cycle
        # The model that was asked in this cycle, and what the best look-up was worth.
        self._pending_ask: tuple[_Model, float] | None = None

    def fork(self) -> "HybridDrafter | None":
        """A hybrid of forks, which learns with this one how far look-ups can be believed; None if a member has none."""
        forks = [fork for drafter in self.drafters if (fork := drafter.fork()) is not None]
        if len(forks) < len(self.drafters):
            return None
        forked = HybridDrafter(forks, clock=self._clock)
        for member, own in zip(forked._members, self._members, strict=True):
            member.acceptance = own.acceptance
        return forked

    def draw_with(self, draw: "Draw | None") -> None:
        """Pass it on to the members, of which some can draw."""
        for drafter in self.drafters:
            drafter.draw_with(draw)

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a generation with all members, also those switched off in an earlier one; what was learnt stays."""
        if self._cycles:
            self._usual_cycles += (self._cycles - self._usual_cycles) / 4
        self._cycles, self._spent, self._rows = 0, 0.0, 1
        self._proposed_at = self._pending_ask = None
        self._unread = list(prompt)
        self._look_ups = [member for member in self._members if not isinstance(member, _Model)]
        self._models = [member for member in self._members if isinstance(member, _Model)]
        for member in self._members:
            member.begin(len(prompt))
            member.drafter.report = self.report
            if member.reads:
                self._attempt(member, partial(member.drafter.start, prompt))

    def propose(self, limit: int) -> Proposal:
        """The best proposal of at most ``limit`` tokens, under its member's name."""
        prices = self._prices = self._current_prices(limit)
        best, worth = Proposal((), self.name), 0.0
        self._cycles += 1
        for member in self._look_ups:
            member.proposal = self._proposal_of(member, limit)
            length, own = prices.best_cut(member.probabilities(member.proposal))
            if own > worth:
                best, worth = member.proposal.cut(length), own
        model, length = self._worth_asking(limit, worth)
        if model is not None:
            guess = self._guess_of(model, length)
            each = model.probabilities(guess)
            continued, total = self._continued(guess, each, limit)
            step = prices.curve[len(guess.tokens) + 1] - prices.curve[1]
            total += prices.worth(expected_accepted_length(each) * (1.0 - prices.rate * prices.caller), step)
            # Drafts once drawn are used, no matter what they are: the output would lean towards those that please.
            if guess.distribution is not None or total > worth:
                best = continued
            self._pending_ask = model, worth
        self._rows = len(best.tokens) + 1
        self._proposed_at = self._clock()
        return best

    def extend(self, tokens: Sequence[int], limit: int) -> Proposal:
        """What the best of the look-ups expects after ``tokens``; no model is asked."""
        found = [(member, self._proposal_of(member, limit, tokens)) for member in self._look_ups]
        likely = [expected_accepted_length(member.probabilities(proposal)) for member, proposal in found]
        return found[likely.index(max(likely))][1] if found else Proposal((), self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        """Commit the tokens to every member, and learn from what they had proposed."""
        if self._proposed_at is not None:
            seconds = self._clock() - self._proposed_at
            self._pass_seconds += (seconds - self._pass_seconds) / 10 if self._pass_seconds else seconds
            self._proposed_at = None
            self._count_cycle(tokens)
        if self._unread is not None:
            self._unread += tokens
        for member in (*self._look_ups, *self._models):
            member.learn(tokens)
            if member.reads:
                self._attempt(member, partial(member.drafter.commit, tokens))

    def acceptance(self) -> dict[str, float]:
        """By member name, the tokens that were right as a share of those it was sure of."""
        return {member.drafter.name: member.acceptance.share for member in (*self._look_ups, *self._models)}

    @property
    def records(self) -> list[DraftRecord]:
        """What is known of each model."""
        return [member.alone for member in self._members if isinstance(member, _Model)]

    @property
    def draft_models(self) -> list[tuple[Any, DraftRecord]]:
        """The models that have a cache, and what is known of each."""
        models = [member for member in self._members if isinstance(member, _Model)]
        return [(cache.model, model.alone) for model in models if (cache := model.drafter.cache) is not None]

    def _current_prices(self, limit: int) -> Prices:
        """What a cycle costs: as the controller knows, or else as was measured here."""
        if self.costs is None or not self.costs.pass_seconds[1]:
            curve: Sequence[float] = [self._pass_seconds or 1.0] * (max(limit, MAX_DRAFT_TOKENS) + 2)
            caller = 0.0
        else:
            curve, caller = self.costs.pass_seconds, self.costs.caller_seconds
        return Prices(curve, caller, max(1.0, self._recent_tokens / self._recent_passes) / max(curve[1], caller))

    def _count_cycle(self, tokens: Sequence[int]) -> None:
        """Count the cycle for the usual rate, and for the account of the model that was asked."""
        prices = self._prices
        seconds = self._spent + prices.curve[self._rows] + prices.caller * len(tokens)
        self._recent_tokens = _DECAY * self._recent_tokens + len(tokens)
        self._recent_passes = _DECAY * self._recent_passes + seconds / prices.plain
        for model in self._models:
            if self._pending_ask is None or model is not self._pending_ask[0]:
                model.losses.rest()
            else:
                without = self._pending_ask[1] + prices.worth(1.0, prices.curve[1] + prices.caller)
                won = prices.worth(len(tokens), seconds) - without
                model.losses.settle(won / (prices.rate * prices.plain), 1.0)
        self._pending_ask, self._spent = None, 0.0

    def _worth_asking(self, limit: int, worth: float) -> tuple[_Model | None, int]:
        """The model that promises more than ``worth``, that of the best look-up, and for how many tokens."""
        found: tuple[_Model | None, int] = (None, 0)
        for model in self._models:
            model.record = model.contested if worth > 0.0 else model.alone
            length, own = self._best_length(model, limit)
            gain = own - worth
            model.gain = gain if model.gain is None else model.gain + (max(0.0, gain) - model.gain) / 16
            if gain > 0.0 and model.losses.left + model.invested > 0.0 and self._is_worth_reading(model):
                found, worth = (model, length), worth + gain
        return found

    def _is_worth_reading(self, model: _Model) -> bool:
        """Whether a model's usual gain, for the rest of the text, is more than reading what it has missed costs."""
        if model.missed <= _MISSED:
            return True
        seconds = model.record.times.per_missed * model.missed
        left = max(self._usual_cycles - self._cycles, self._cycles)
        affordable = model.losses.left >= min(seconds / self._prices.plain, _PART * ALLOWANCE)
        return affordable and (model.gain or 0.0) * left > self._prices.rate * seconds

    def _best_length(self, model: _Model, limit: int) -> tuple[int, float]:
        """The draft length of a model that promises most, and what it is worth more than a pass without drafts."""
        prices, record = self._prices, model.record
        times, plain = record.times, prices.curve[1]
        if not times.measured:
            times.fixed, times.per_token = 0.0, _UNMEASURED * plain
        steps = list(record.accepted.steps)
        tried = record.accepted.tried[0] * FADING**model.unasked
        hope = max(0.1, 1.0 - _CAUTION * times.per_token / prices.curve[2])
        steps[0] = (steps[0] * tried + hope * _HOPED) / (tried + hope)
        tokens, seconds = record.expected(prices.curve, prices.caller, steps)
        without = prices.worth(1.0, plain + prices.caller)
        worths = [prices.worth(*each) - without for each in zip(tokens[1:], seconds[1:], strict=True)][:limit]
        most = max(worths, default=0.0)
        return (worths.index(most) + 1, most) if worths else (0, 0.0)

    def _guess_of(self, model: _Model, limit: int) -> Proposal:
        """What a model proposes; its time is measured."""
        begun, times = self._clock(), model.record.times
        if not model.reads:
            self._attempt(model, partial(model.drafter.start, tuple(self._unread or ())))
            model.reads = True
            if all(member.reads for member in self._members):
                self._unread = None
        if model in self._models:
            model.proposal, model.asked = self._proposal_of(model, limit), limit
        seconds, count = self._clock() - begun, len(model.proposal.tokens)
        if not times.measured:  # the first prompt is read on trust
            self._spent = times(count)
        else:
            usual = OUTLIER * times(count, model.missed)
            self._spent = min(seconds, usual) if times.per_missed or model.missed <= _MISSED else seconds
        if model.missed > _MISSED:
            model.invested += max(0.0, self._spent - times(count)) / self._prices.plain
        times.add(count, model.missed, seconds)
        return model.proposal

    def _continued(self, guess: Proposal, probabilities: list[float], limit: int) -> tuple[Proposal, float]:
        """A model's guess, continued by the best look-up, and what that is worth more."""
        best, most, left = guess, 0.0, limit - len(guess.tokens)
        if not guess.tokens or left <= 0:
            return guess, 0.0
        before, rows = prod(probabilities), len(guess.tokens) + 1
        for other in self._look_ups:
            more = self._proposal_of(other, left, guess.tokens)
            length, worth = self._prices.best_cut(other.probabilities(more), before, rows)
            if worth > most:
                tokens, name = (*guess.tokens, *more.tokens[:length]), f"{guess.source}+{more.source}"
                best, most = Proposal(tokens, name, distribution=guess.distribution), worth
        return best, most

    def _proposal_of(self, member: _Member, limit: int, guessed: Sequence[int] = ()) -> Proposal:
        """A member's proposal, after ``guessed`` of another one if any; an empty one from a member that fails."""
        drafter = member.drafter
        ask = partial(drafter.extend, guessed) if guessed else drafter.propose
        return self._attempt(member, lambda: ask(limit).cut(limit)) or Proposal((), drafter.name)

    def _attempt(self, member: _Member, act: Callable[[], _Result]) -> _Result | None:
        """Let a member act; one that fails is switched off until the next ``start``."""
        try:
            return act()
        except Exception as error:
            self.report(member.drafter, error)
            self._look_ups = [other for other in self._look_ups if other is not member]
            self._models = [other for other in self._models if other is not member]
            return None
