"""One drafter or several in one: in every cycle, the member and the length that promise most for their cost.

A proposal is worth the tokens that a cycle with it is expected to commit, less those that the text would gain in the
same time at its usual rate:

    worth = tokens - rate * (draft seconds + seconds of a pass over its rows + caller seconds * tokens)

The ratio of tokens to seconds would be the wrong measure: it favours a slow proposal that is a little better than
nothing over a quick plain pass, after which a look-up may know what follows.

Drafters say how sure they are of each token, and how far that can be believed is learnt. One that looks things up costs
nothing and is always asked. A model is asked where that promises to gain more than it costs: each time, what the cycle
made is compared with what the best look-up would have made of the same text, and the more a look-up is in doubt, the
more there is to gain. It drafts as far as it is sure enough, and its guess is continued by look-up. A look-up that says
otherwise is right less often than it states, which is learnt as well. Reading what a model has missed, the prompt at
first, has to pay within the rest of the text, which is taken to be as long as earlier ones.

What a model has lost in all is taken from its `LossAccount`. If that is empty it is not asked, and the look-ups go on
alone. What look-ups lose is for the controller to bound, as with any drafter.

Where the draft length is fixed, or the text shares its passes with others, no controller knows what passes cost. Then
the hybrid measures passes itself, and takes those over more rows to cost as much.

Source: expected accepted length and its cost: Leviathan et al. 2023, sections 3.1 and 3.3; comparing with the usual
rate: Charnov 1976, the marginal value theorem.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from operator import itemgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from spectool import RuntimeUnsupported
from spectool.runtime.draft_length.record import (
    ALLOWANCE,
    MAX_LOSS,
    MODEL_SHARE,
    ModelRecord,
    StatedAcceptance,
)
from spectool.runtime.draft_length.timings import OUTLIER
from spectool.runtime.drafters.drafter import NOTHING, Drafter, Proposal, accepted_length
from spectool.runtime.drafters.prices import Prices, expected_accepted_length
from spectool.runtime.settings import MAX_DRAFT_TOKENS

if TYPE_CHECKING:
    from spectool.runtime.sampling.verification import Draw

_Result = TypeVar("_Result")
_DECAY = 0.98  # weight of what was usual, from cycle to cycle
_UNMEASURED = 0.1  # cost of a draft token in plain passes before it is measured
_RATE_PRIOR = 16.0  # plain cycles that the usual rate counts for at first
_TEXT = 64.0  # cycles of a text before the first one has ended
_MISSED = 8  # missed tokens that are read at the cost of a usual proposal


@dataclass(eq=False)
class _Member:
    """A drafter, and what became of its proposals.

    Attributes:
        acceptance: How far it can be believed.
        doubted: How far its first token can be believed where a model says otherwise.
    """

    drafter: Drafter
    acceptance: StatedAcceptance = field(default_factory=partial(StatedAcceptance, prior=4.0, share=0.9))
    doubted: StatedAcceptance = field(default_factory=partial(StatedAcceptance, prior=4.0, share=0.5))
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

    record: ModelRecord = field(default_factory=ModelRecord)
    missed: int = 0  # tokens that it has not read
    invested: float = 0.0  # plain passes that reading took it in this generation, which are to come back

    def begin(self, prompt: int) -> None:
        """Begin a generation without reading the prompt."""
        super().begin(prompt)
        self.missed, self.invested, self.reads = prompt, 0.0, False
        self.record.times.begin()

    def learn(self, committed: Sequence[int]) -> None:
        """Count also what it has missed."""
        super().learn(committed)
        self.missed += len(committed)


class _Found(NamedTuple):
    """The best proposal of the look-ups."""

    proposal: Proposal
    probabilities: list[float]  # of its tokens
    member: _Member | None  # whose it is; None if there is none

    @property
    def doubt(self) -> float:
        """The probability that its first token is not the next one."""
        return 1.0 - (self.probabilities[0] if self.probabilities else 0.0)


class HybridDrafter(Drafter):
    """Proposes what promises most for its cost: of look-ups, of a draft model, or of both, one after the other.

    One that raises is switched off with a warning until the next ``start``. A model is started when it is first asked.

    Attributes:
        drafters: The members.
    """

    def __init__(self, drafters: Sequence[Drafter], *, clock: Callable[[], float] = perf_counter) -> None:
        """Combine ``drafters``, whose seconds are those of ``clock``.

        Raises:
            RuntimeUnsupported: They are not a list of drafters, or there is none.
        """
        self.drafters = tuple(drafters) if isinstance(drafters, Sequence) else ()
        if not self.drafters or not all(isinstance(drafter, Drafter) for drafter in self.drafters):
            raise RuntimeUnsupported(f"drafters: expected a list of drafters, got {drafters!r:.100}")
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
        self._found = _Found(NOTHING, [], None)  # in this cycle
        self._asked: _Model | None = None  # the model that was asked in this cycle
        self._doubted = False  # whether it said otherwise than the look-ups

    def fork(self) -> "HybridDrafter | None":
        """A hybrid of forks, which learns with this one how far look-ups can be believed; None if a member has none."""
        forks = [fork for drafter in self.drafters if (fork := drafter.fork()) is not None]
        if len(forks) < len(self.drafters):
            return None
        forked = HybridDrafter(forks, clock=self._clock)
        for member, own in zip(forked._members, self._members, strict=True):
            member.acceptance, member.doubted = own.acceptance, own.doubted
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
        self._proposed_at = self._asked = None
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
        if self.costs is None and len(self._members) == 1 and self._models:
            # As many as are asked for, no matter what they cost: a seed gives the same drawn drafts again.
            return self._guess_of(self._models[0], limit)
        found, worth = _Found(Proposal((), self.name), [], None), 0.0
        self._cycles += 1
        for member in self._look_ups:
            member.proposal = self._proposal_of(member, limit)
            each = member.probabilities(member.proposal)
            length, own = prices.best_cut(each)
            if own > worth:
                found, worth = _Found(member.proposal.cut(length), each[:length], member), own
        self._found, best = found, found.proposal
        self._asked = self._model_worth_asking() if limit else None
        if (model := self._asked) is not None:
            usual = model.probabilities(Proposal((0,) * limit, ""))
            length, _ = prices.best_cut(usual, drafting=model.record.times.per_token)
            best = self._completed(model, self._guess_of(model, max(1, length)), limit)
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
    def records(self) -> list[ModelRecord]:
        """What is known of each model."""
        return [member.record for member in self._members if isinstance(member, _Model)]

    @property
    def draft_models(self) -> list[tuple[Any, ModelRecord]]:
        """The models that have a cache, and what is known of each."""
        models = [member for member in self._members if isinstance(member, _Model)]
        return [(cache.model, model.record) for model in models if (cache := model.drafter.cache) is not None]

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
            if model is self._asked:
                won = prices.worth(len(tokens), seconds) - self._worth_without(tokens)
                price = prices.rate * model.record.times(len(model.proposal.tokens))
                model.record.settle(won + prices.rate * self._spent, self._found.doubt, price)
                model.record.losses.settle(won / (prices.rate * prices.plain), 1.0)
            else:
                model.record.rest()
        if self._doubted and (member := self._found.member) is not None:
            right = int(self._found.proposal.tokens[0] == tokens[0])
            member.doubted.learn(self._found.proposal.stated[:1], right)
        self._asked, self._doubted, self._spent = None, False, 0.0

    def _worth_without(self, committed: Sequence[int]) -> float:
        """What this cycle would have been worth with the best proposal of the look-ups."""
        proposal, probabilities, _ = self._found
        count, prices = len(proposal.tokens), self._prices
        right = accepted_length(proposal.tokens, committed)
        rest = probabilities[right:] if right == len(committed) else []  # nothing contradicts them
        tokens = 1 + right + expected_accepted_length(rest)
        return prices.worth(tokens, prices.curve[count + 1] + prices.caller * tokens)

    def _model_worth_asking(self) -> _Model | None:
        """The model that gains most when it is asked; None if there is none that gains anything."""
        gains = [(self._gain(model), model) for model in self._models]
        gain, model = max(gains, key=itemgetter(0), default=(0.0, None))
        return model if gain > 0.0 else None

    def _gain(self, model: _Model) -> float:
        """Tokens that asking a model gains; 0 if reading what it has missed does not pay in the rest of the text."""
        record, prices = model.record, self._prices
        if not record.times.measured:
            record.times.fixed, record.times.per_token = 0.0, _UNMEASURED * prices.plain
        rate = prices.rate * record.fading  # the machine may have become free
        gain = record.gain(self._found.doubt, rate * record.times.per_token)
        if gain <= 0.0 or record.losses.left + model.invested <= 0.0:
            return 0.0
        if model.missed > _MISSED:
            seconds = record.times.per_missed * model.missed
            left = max(self._usual_cycles - self._cycles, self._cycles)
            passes, affordable = record.fading * seconds / prices.plain, record.losses.left
            if model.reads:  # again: what it has missed is no investment in the rest of the text
                affordable = max(affordable, MODEL_SHARE * MAX_LOSS * self._cycles - model.invested)
            else:
                passes = min(passes, MODEL_SHARE * ALLOWANCE)
            if passes > affordable or gain * left <= rate * seconds:
                return 0.0
        return gain

    def _guess_of(self, model: _Model, limit: int) -> Proposal:
        """What a model proposes; its time is measured."""
        begun, times = self._clock(), model.record.times
        if not model.reads:
            self._attempt(model, partial(model.drafter.start, tuple(self._unread or ())))
            model.reads = True
            if all(member.reads for member in self._members):
                self._unread = None
        if model in self._models:
            model.proposal = self._proposal_of(model, limit)
        seconds, count = self._clock() - begun, len(model.proposal.tokens)
        if not times.measured or model.record.untried:  # the first prompt is read on trust
            self._spent = times(count)
        else:
            most = OUTLIER * times(count, model.missed)
            self._spent = min(seconds, most) if times.per_missed or model.missed <= _MISSED else seconds
        if model.missed > _MISSED:
            model.invested += max(0.0, self._spent - times(count)) / self._prices.plain
        times.add(count, model.missed, seconds)
        times.update()
        model.missed = 0
        return model.proposal

    def _completed(self, model: _Model, guess: Proposal, limit: int) -> Proposal:
        """The best proposal given a model's guess: all of it and what a look-up expects then, a part, or a look-up's.

        Drafts once drawn are used, no matter what they are: the output would lean towards those that please.
        """
        prices, each, count = self._prices, model.probabilities(guess), len(guess.tokens)
        rows = prices.curve[count + 1] - prices.curve[1]
        whole = prices.worth(expected_accepted_length(each) * (1.0 - prices.rate * prices.caller), rows)
        best, most = guess, whole
        for other in self._look_ups if 0 < count < limit else ():
            more = self._proposal_of(other, limit - count, guess.tokens)
            length, worth = prices.best_cut(other.probabilities(more), prod(each), count + 1)
            if length and whole + worth > most:
                tokens, name = (*guess.tokens, *more.tokens[:length]), f"{guess.source}+{more.source}"
                best, most = Proposal(tokens, name, distribution=guess.distribution), whole + worth
        found, probabilities, member = self._found
        self._doubted = bool(count and member is not None and guess.tokens[0] != found.tokens[0])
        if guess.distribution is not None:
            return best
        if self._doubted and member is not None:
            probabilities = [*member.doubted.probabilities(found.stated[:1]), *probabilities[1:]]
        parts = [(guess, *prices.best_cut(each)), (found, *prices.best_cut(probabilities))]
        for proposal, length, worth in parts:
            if worth > most or not best.tokens:
                best, most = proposal.cut(length), worth
        return best

    def _proposal_of(self, member: _Member, limit: int, guessed: Sequence[int] = ()) -> Proposal:
        """A member's proposal, after ``guessed`` of another one if any; an empty one from a member that fails."""
        drafter = member.drafter
        ask = partial(drafter.extend, guessed) if guessed else drafter.propose
        proposal = self._attempt(member, lambda: ask(limit).cut(limit)) or Proposal((), drafter.name)
        # What was drawn may not be shortened afterwards, as proposals of look-ups are. So theirs are guesses.
        return proposal if isinstance(member, _Model) else proposal._replace(distribution=None)

    def _attempt(self, member: _Member, act: Callable[[], _Result]) -> _Result | None:
        """Let a member act; one that fails is switched off until the next ``start``."""
        try:
            return act()
        except Exception as error:
            self.report(member.drafter, error)
            self._look_ups = [other for other in self._look_ups if other is not member]
            self._models = [other for other in self._models if other is not member]
            return None
