"""Which drafter proposes, and how far: one policy, for a text alone and for texts that share their passes.

    the drafters propose with stated probabilities -> the policy cuts and chooses -> the pass runs -> the policy learns

A pass over k drafts takes ``costs[k]`` plain passes, which was measured before (`PassCurve`). A proposal is worth the
tokens that it promises, less those that its time would usually give:

    worth(k) = p1 + p1 p2 + ... + p1 .. pk - rate (costs[k] - costs[0])        rate: usual tokens in a plain pass

The ratio of tokens to seconds would be the wrong measure, because it favours slow proposals (docs/design.md).

Look-ups cost nothing and are always asked. A draft model is asked where that has usually been worth more than what the
best look-up promises now, and for as many tokens as are worth most if it is sure of them; look-ups may continue its
guess. What look-ups lose against plain decoding is bounded by an account.

Acceptance is learnt, and nothing about time but how far passes with drafts are off the curve (`Drift`), which counts
only where it is far. So the same text is drafted in the same way every time.

Source: expected accepted length and its cost: Leviathan et al. 2023, sections 3.1 and 3.3; comparing with the usual
rate: Charnov 1976, the marginal value theorem.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from spectool.runtime.drafters.drafter import NOTHING, Proposal, accepted_length
from spectool.runtime.drafters.guarded import GuardedDrafter
from spectool.runtime.policy.account import DECAY, LossAccount, Trials
from spectool.runtime.policy.curve import ASSUMED, FREE, Drift, PassCurve
from spectool.runtime.policy.record import USUAL, Record
from spectool.runtime.settings import LONGEST_DRAFT

_RATE_PRIOR = 16.0  # plain passes that the usual rate counts for at first, a quarter of a short answer
_TEXT = 64.0  # cycles that a text is taken to last before one has ended
_DOUBTED = 0.5  # of the probability of a look-up's first token is left where a model says otherwise
_CATCHING_UP = 8  # missed tokens that a model reads in the pass of its first draft; more take passes of their own


class Candidate(NamedTuple):
    """A proposal, and the probability of each of its tokens if those before it are right."""

    proposal: Proposal
    probabilities: Sequence[float]

    def expected(self, longest: int) -> list[float]:
        """Accepted tokens on average, by draft length, shape [longest + 1].

        >>> Candidate(NOTHING, [0.5, 0.5]).expected(3)
        [0.0, 0.5, 0.75, 0.75]
        """
        found = [0.0, *accumulate(accumulate(self.probabilities[:longest], mul))]
        return found + [found[-1]] * (longest + 1 - len(found))

    def cut(self, length: int) -> "Candidate":
        """The candidate of the first ``length`` tokens."""
        return Candidate(self.proposal.cut(length), self.probabilities[:length])


NOBODY = Candidate(NOTHING, ())


class Choice(NamedTuple):
    """What a cycle of a text that is alone proposes, and what it costs.

    Attributes:
        proposal: The proposal.
        cost: Plain passes that the cycle takes, with those of a draft model.
        look_up: The best proposal of the look-ups.
        look_up_cost: Plain passes of a cycle with this one.
        model: The draft model that was asked; None if none was.
        reading: Plain passes that the model takes besides, to read what it has missed.
        expected: What asking it would be worth, in tokens, if nothing were known of it.
    """

    proposal: Proposal
    cost: float
    look_up: Candidate = NOBODY
    look_up_cost: float = 1.0
    model: GuardedDrafter | None = None
    reading: float = 0.0
    expected: float = 0.0


class Policy:
    """Chooses proposals with one model, for one text after another or for several at a time.

    Attributes:
        curve: What passes cost.
        longest: The most draft tokens in a pass.
        account: What drafting may still lose.
        trials: What drafts against the curve may still lose.
    """

    def __init__(
        self, curve: PassCurve = FREE, longest: int = LONGEST_DRAFT, doubt: Callable[[], object] = lambda: None
    ) -> None:
        """Choose up to ``longest`` tokens by what passes cost; by default, all that is promised.

        Calls ``doubt`` when passes take another time than ``curve`` says.
        """
        self.curve, self.longest = curve, longest
        self.account, self.trials = LossAccount(), Trials()
        self._drifts = defaultdict[int, Drift](lambda: Drift(doubt))  # by the number of texts in a pass
        self._records = defaultdict[str, Record](Record)
        self._tokens = self._passes = _RATE_PRIOR
        self._cycles, self._usual_cycles = 0, _TEXT  # of this text, and of texts on average

    def record(self, name: str) -> Record:
        """What is known of the drafter of this name."""
        return self._records[name]

    @property
    def rate(self) -> float:
        """Tokens that are usually written in the time of a plain pass; no fewer than without drafts."""
        return max(1.0, self._tokens / self._passes)

    @property
    def is_automatic(self) -> bool:
        """Whether drafts are as long as pays; otherwise, they are as long as was asked for."""
        return self.curve is not FREE

    def paused(self, texts: int = 1) -> bool:
        """Whether the next pass over this many texts goes without drafts, so that no drafter need be asked."""
        return self.account.left <= 0.0 or not self.longest or self.drift(texts).wants_plain

    def drift(self, texts: int = 1) -> Drift:
        """How far passes over so many texts are off the curve where they have drafts."""
        return self._drifts[texts]

    def start(self) -> None:
        """Begin a text."""
        if self._cycles:
            self._usual_cycles += (self._cycles - self._usual_cycles) / 4
        self._cycles = 0

    def propose(self, drafters: Sequence[GuardedDrafter], limit: int, context: int, refed: int = 0) -> Choice:
        """The best proposal of at most ``limit`` tokens after ``context`` tokens, of which ``refed`` are fed again."""
        self._cycles += 1
        limit = min(limit, self.longest)
        costs = self.costs(limit, context, refed=refed)
        tried = costs if self.curve is ASSUMED else self.trials.costs(costs, self.drift().hoped(costs, 1 + refed))
        look_ups = [each for each in drafters if not each.is_model]
        length, (best,), worth = self.best([self.candidates(look_ups, limit)], tried)
        found = best.cut(length)
        if tried[length] < costs[length]:
            self.trials.begin(costs[length])
            return Choice(found.proposal, tried[length], found, tried[length])
        asked, count, reading, expected = self._model_to_ask(drafters, limit, costs, worth)
        if asked is None:
            return Choice(found.proposal, costs[length], found, costs[length])
        guess, drafting = self._guess_of(asked, count)
        chosen = self._extended_by_look_up(guess, found, look_ups, costs, self._most(asked, limit))
        cost = drafting + costs[len(chosen.tokens)]
        return Choice(chosen, cost, found, costs[len(found.proposal.tokens)], asked, reading, expected)

    def costs(self, longest: int, context: int, *, texts: int = 1, refed: int = 0) -> list[float]:
        """Plain passes that a pass takes, by draft length, shape [longest + 1]."""
        drift = self.drift(texts)
        found = self.curve.costs(longest, context, texts=texts, refed=refed, drift=drift.factor)
        return drift.corrected(found, 1 + refed)

    def candidates(self, look_ups: Sequence[GuardedDrafter], limit: int) -> list[Candidate]:
        """What look-ups propose. They may be cut, so what they have drawn counts as a guess."""
        found = []
        for each in look_ups:
            proposal = each.propose(self._most(each, limit))._replace(distribution=None)
            found.append(Candidate(proposal, self.record(each.name).acceptance.probabilities(proposal.stated)))
        return found

    def best(
        self, texts: Sequence[Sequence[Candidate]], costs: Sequence[float]
    ) -> tuple[int, Sequence[Candidate], float]:
        """The draft length that is worth most for texts in one pass, the best candidate of each, and the worth.

        The worth is in tokens of one text. A pass has the same number of rows for every text.
        """
        longest = min(len(costs) - 1, max((len(each.probabilities) for text in texts for each in text), default=0))
        expected = [[(each.expected(longest), each) for each in text or (NOBODY,)] for text in texts]
        best: tuple[int, Sequence[Candidate], float] = 0, [NOBODY] * len(texts), 0.0
        rate = self.rate
        for length in range(1, longest + 1):
            picks = [max(text, key=lambda one: one[0][length]) for text in expected]
            tokens = sum(promised[length] for promised, _ in picks) / len(texts)
            worth = tokens - rate * (costs[length] - costs[0])
            if worth > best[2] or (best[0] and worth == best[2]):
                best = length, [candidate for _, candidate in picks], worth
        return best

    def learn(self, drafters: Sequence[GuardedDrafter], choice: Choice, committed: Sequence[int]) -> None:
        """Learn what became of a cycle of a text that was alone."""
        self.judge(drafters, committed)
        without = float(len(committed)) if choice.model is None else 1.0 + _accepted(choice.look_up, committed)
        self.account.settle(without - choice.look_up_cost, without)
        for model in (each for each in drafters if each.is_model):
            record = self.record(model.name)
            if model is choice.model:
                record.learn(len(committed) - 1 - self.rate * (choice.cost - 1.0) - choice.expected)
            else:
                record.rest()
        self._count(choice.cost + choice.reading, len(committed))

    def judge(self, drafters: Sequence[GuardedDrafter], committed: Sequence[int]) -> None:
        """Learn how much of what each drafter proposed was right."""
        for each in drafters:
            self.record(each.name).judge(each.proposal, committed)

    def rest(self, drafters: Sequence[GuardedDrafter]) -> None:
        """Let a cycle pass in which no drafter was asked."""
        self.account.rest()
        for model in (each for each in drafters if each.is_model):
            self.record(model.name).rest()

    def observe(self, rows: int, seconds: float, context: int, *, drafted: bool, texts: int = 1) -> None:
        """Compare a pass with the curve; one over 0 ``rows`` of a text is a plain pass that began ahead."""
        if self.is_automatic:
            expected = self.curve.seconds(rows * texts, context)
            self.trials.end(self.drift(texts).observe(rows, seconds, expected, drafted=drafted))

    def settle(self, cost: float, tokens: float) -> None:
        """Learn from a pass of several texts that took ``cost`` plain ones, and committed ``tokens`` of each text."""
        self.account.settle(tokens - cost, tokens)
        self._count(cost, tokens)

    def _count(self, cost: float, tokens: float) -> None:
        self._tokens = DECAY * self._tokens + tokens
        self._passes = DECAY * self._passes + cost

    def _most(self, drafter: GuardedDrafter, limit: int) -> int:
        """The most tokens that a drafter is asked for; where their number is fixed, that many."""
        return min(limit, drafter.longest) if self.is_automatic else limit

    def _model_to_ask(
        self, drafters: Sequence[GuardedDrafter], limit: int, costs: Sequence[float], worth: float
    ) -> tuple[GuardedDrafter | None, int, float, float]:
        """The model that is worth more than ``worth`` to ask, for how many tokens, its reading, and what was expected.

        It ends by itself where it is not sure, so it is asked for as many as would be worth most if it were sure.
        """
        found: tuple[GuardedDrafter | None, int, float, float] = None, 0, 0.0, 0.0
        for model in (each for each in drafters if each.is_model and limit):
            record, most = self.record(model.name), self._most(model, limit)
            drafting = [cost + length * record.cost_of_token for length, cost in enumerate(costs[: most + 1])]
            sure = record.acceptance.share
            _, _, expected = self.best([[Candidate(NOTHING, [min(USUAL, sure)] * most)]], drafting)
            promised = expected + record.gain
            reading = record.cost.reading * len(model.missed) if len(model.missed) > _CATCHING_UP else 0.0
            left = max(self._usual_cycles - self._cycles, self._cycles)
            if promised > worth and (promised - worth) * left * record.gaining >= self.rate * reading:
                count, _, _ = self.best([[Candidate(NOTHING, [min(1.0, sure)] * most)]], drafting)
                found, worth = (model, max(1, count), reading, expected), promised
        return found

    def _guess_of(self, model: GuardedDrafter, length: int) -> tuple[Candidate, float]:
        """What a model proposes, and the plain passes that this takes."""
        record, before = self.record(model.name), model.passes
        guess = model.propose(length)
        passes = model.passes - before or len(guess.tokens)  # a drafter of another kind may not count them
        record.count(passes, len(guess.tokens))
        return Candidate(guess, record.acceptance.probabilities(guess.stated)), passes * record.cost.token

    def _extended_by_look_up(
        self, guess: Candidate, found: Candidate, look_ups: Sequence[GuardedDrafter], costs: Sequence[float], limit: int
    ) -> Proposal:
        """The best proposal given a model's guess: as much of it as pays, perhaps continued, or a look-up's.

        Drawn drafts must always be used. Dropping some after seeing them would bias the output.
        """
        proposal, count = guess.proposal, len(guess.proposal.tokens)
        drawn = proposal.distribution is not None
        if proposal.distribution is not None and len(proposal.distribution) > count:
            return proposal  # a drawn token that the target does not have leaves its row, and nothing follows it
        if count and found.probabilities and found.proposal.tokens[0] != proposal.tokens[0]:
            found = Candidate(found.proposal, [_DOUBTED * found.probabilities[0], *found.probabilities[1:]])
        options = [guess] if drawn else [guess, found]
        for each in look_ups if 0 < count < limit else ():
            more = each.extend(proposal.tokens, limit - count)
            if more.tokens:
                tokens, name = (*proposal.tokens, *more.tokens), f"{proposal.source}+{more.source}"
                longer = proposal._replace(tokens=tokens, source=name, probabilities=())
                likely = self.record(each.name).acceptance.probabilities(more.stated)
                options.append(Candidate(longer, [*guess.probabilities, *likely]))
        length, (best,), _ = self.best([options], costs)
        if length <= count and best is not found:
            best = guess
        return best.proposal.cut(max(length, count) if drawn else length)


def _accepted(candidate: Candidate, committed: Sequence[int]) -> float:
    """How many tokens of a candidate were right; those that outlast ``committed`` as far as they were promised."""
    right = accepted_length(candidate.proposal.tokens, committed)
    rest = candidate.probabilities[right:] if right == len(committed) else ()
    return right + Candidate(NOTHING, rest).expected(len(rest))[-1]
