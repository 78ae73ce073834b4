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
from typing import NamedTuple, TypeAlias

from spectool.runtime.drafters.drafter import NOTHING, Proposal, accepted_length
from spectool.runtime.drafters.drafter_slot import DrafterSlot, TextDrafters
from spectool.runtime.policy.account import DECAY, LossAccount, Trials
from spectool.runtime.policy.curve import ASSUMED, FAR_OFF, FREE, Drift, PassCurve
from spectool.runtime.policy.record import PRIOR_ACCEPTANCE, Record
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


NO_CANDIDATE = Candidate(NOTHING, ())


class Choice(NamedTuple):
    """What texts propose in a pass that they share, and what it costs.

    Attributes:
        texts: Their drafters.
        proposals: What each proposes.
        cost: Plain passes of these texts that the cycle takes, with the passes of a draft model.
        look_ups: The best proposal of the look-ups of each.
        look_up_cost: Plain passes of a cycle with these, or what they are hoped to take where the curve is tried.
        asked: The draft model of each text that was asked, None for a text whose model was not.
        reading: Plain passes that the models take besides, to read what they have missed.
        expected: What asking them would be worth, in tokens of one text, if nothing were known of them.
        rests: Whether nobody was asked, since there is to be no draft.
    """

    texts: Sequence[TextDrafters]
    proposals: Sequence[Proposal]
    cost: float = 1.0
    look_ups: Sequence[Candidate] = ()
    look_up_cost: float = 1.0
    asked: Sequence[DrafterSlot | None] = ()
    reading: float = 0.0
    expected: float = 0.0
    rests: bool = False

    @property
    def proposal(self) -> Proposal:
        """What the first text proposes."""
        return self.proposals[0]


Draft: TypeAlias = Callable[[Sequence[tuple[DrafterSlot, int]]], Sequence[Proposal]]


def draft_in_turn(asked: Sequence[tuple[DrafterSlot, int]]) -> list[Proposal]:
    """The proposals of several models, each with its limit, one after the other."""
    return [slot.propose(limit) for slot, limit in asked]


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
        self._usual_cycles = _TEXT  # of a text

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

    def end(self, text: TextDrafters) -> None:
        """Learn how long a text was."""
        if text.cycles:
            self._usual_cycles += (text.cycles - self._usual_cycles) / 4

    def choose(
        self,
        texts: Sequence[tuple[TextDrafters, int]],
        *,
        together: int = 1,
        refed: int = 0,
        least: int = 0,
        draft: Draft = draft_in_turn,
    ) -> Choice:
        """The best proposals for a pass over some texts, each with its own limit.

        Args:
            texts: The drafters of each text, and the most tokens that it can propose.
            together: Texts in the pass, with those that are not asked here.
            refed: Tokens that a text feeds again in it, at most.
            least: Drafts of these other texts, so that the pass has as many rows in any case.
            draft: Asks models.
        """
        together = max(together, len(texts))
        if self.paused(together):
            return Choice([text for text, _ in texts], [NOTHING] * len(texts), rests=True)
        drafters: list[TextDrafters] = []
        limits: list[int] = []
        offered: list[list[Candidate]] = []
        longest, context = least, 0
        for text, limit in texts:
            limit = min(limit, self.longest)
            text.cycles += 1
            longest, context = max(longest, limit), max(context, text.context)
            drafters.append(text)
            limits.append(limit)
            offered.append(self.candidates(text.look_ups, limit))
        costs = _level(self.costs(longest, context, texts=together, refed=refed), least)
        tried = costs
        if together == 1 and costs[-1] > FAR_OFF and self.curve is not ASSUMED:
            tried = self.trials.costs(costs, self.drift().hoped(costs, 1 + refed))
        length, picks, worth = self.best(offered, tried)
        found = [pick.cut(length) for pick in picks] if length else picks
        proposals = [pick.proposal for pick in found]
        if tried[length] < costs[length]:
            self.trials.begin(costs[length])
            return Choice(drafters, proposals, costs[length], found, tried[length])
        cost = _cost_of(proposals, costs)
        if any(text.models for text in drafters):
            asked, count, reading, expected = self._models_to_ask(drafters, limits, costs, offered, worth, together)
            if any(asked):
                guesses, drafting = self._guesses_of(asked, count, limits, together, draft)
                proposals = self._with_guesses(guesses, found, drafters, asked, limits, costs)
                whole = drafting + _cost_of(proposals, costs)
                return Choice(drafters, proposals, whole, found, cost, asked, reading, expected)
        return Choice(drafters, proposals, cost, found, cost)

    def _with_guesses(
        self,
        guesses: Sequence[Candidate],
        found: Sequence[Candidate],
        texts: Sequence[TextDrafters],
        asked: Sequence[DrafterSlot | None],
        limits: Sequence[int],
        costs: list[float],
    ) -> list[Proposal]:
        """The best proposals given what models guess and what look-ups have found."""
        options = [
            [best] if model is None else self._options(guess, best, text.look_ups, self._most(model, limit))
            for guess, best, text, limit, model in zip(guesses, found, texts, limits, asked, strict=True)
        ]
        drawn = max(len(guess.proposal.tokens) * (guess.proposal.distribution is not None) for guess in guesses)
        length, picks, _ = self.best(options, _level(costs, drawn))
        return [_taken(guess, pick, length) for guess, pick in zip(guesses, picks, strict=True)]

    def costs(self, longest: int, context: int, *, texts: int = 1, refed: int = 0) -> list[float]:
        """Plain passes that a pass takes, by draft length, shape [longest + 1]."""
        drift = self.drift(texts)
        found = self.curve.costs(longest, context, texts=texts, refed=refed, drift=drift.factor)
        return drift.corrected(found, 1 + refed)

    def candidates(self, look_ups: Sequence[DrafterSlot], limit: int) -> list[Candidate]:
        """What look-ups propose. They may be cut, so what they have drawn counts as a guess."""
        found = []
        for each in look_ups if limit else ():
            proposal = each.propose(self._most(each, limit))
            if proposal.distribution is not None:
                proposal = proposal._replace(distribution=None)
            found.append(Candidate(proposal, self.record(each.name).acceptance.probabilities(proposal.stated)))
        return found

    def best(
        self, texts: Sequence[Sequence[Candidate]], costs: Sequence[float]
    ) -> tuple[int, Sequence[Candidate], float]:
        """The draft length that is worth most for texts in one pass, the best candidate of each, and the worth.

        The worth is in tokens of one text. A pass has the same number of rows for every text.
        """
        longest = min(len(costs) - 1, max([len(each.probabilities) for text in texts for each in text], default=0))
        if not longest:
            return 0, [NO_CANDIDATE] * len(texts), 0.0
        expected = [[(each.expected(longest), each) for each in text or (NO_CANDIDATE,)] for text in texts]
        best: tuple[int, Sequence[Candidate], float] = 0, [NO_CANDIDATE] * len(texts), 0.0
        rate = self.rate
        for length in range(1, longest + 1):
            picks = [max(text, key=lambda one: one[0][length]) for text in expected]
            tokens = sum([promised[length] for promised, _ in picks]) / len(texts)
            worth = tokens - rate * (costs[length] - costs[0])
            if worth > best[2] or (best[0] and worth == best[2]):
                best = length, [candidate for _, candidate in picks], worth
        return best

    def learn(self, choice: Choice, committed: Sequence[Sequence[int]]) -> None:
        """Learn what became of a cycle: the tokens of each text, none for one that has failed or gone meanwhile."""
        cycles = [(at, tokens) for at, tokens in enumerate(committed) if tokens]
        if not cycles:
            return
        for at, tokens in cycles:
            self.judge(choice.texts[at], tokens)
        asked = {model.name for model in choice.asked if model is not None} if choice.asked else ()
        for name in {model.name for text in choice.texts for model in text.models}.difference(asked):
            self.record(name).rest()
        if choice.rests:
            self.account.rest()
            return
        written = sum([len(tokens) for _, tokens in cycles]) / len(cycles)
        without = written
        if asked:
            without = sum(
                len(tokens) if choice.asked[at] is None else 1.0 + _accepted(choice.look_ups[at], tokens)
                for at, tokens in cycles
            ) / len(cycles)
            for name in asked:
                self.record(name).learn(written - 1 - self.rate * (choice.cost - 1.0) - choice.expected)
        self.account.settle(without - choice.look_up_cost, without)
        self._tokens = DECAY * self._tokens + written
        self._passes = DECAY * self._passes + (choice.cost if asked else choice.look_up_cost) + choice.reading

    def judge(self, text: TextDrafters, committed: Sequence[int]) -> None:
        """Learn how much of what each drafter proposed was right."""
        for each in text.slots:
            self.record(each.name).judge(each.proposal, committed)

    def observe(self, rows: int, seconds: float, context: int, *, drafted: bool, texts: int = 1) -> None:
        """Compare a pass with the curve; one over 0 ``rows`` of a text is a plain pass that began ahead."""
        if self.is_automatic:
            expected = self.curve.seconds(rows * texts, context)
            self.trials.end(self.drift(texts).observe(rows, seconds, expected, drafted=drafted))

    def _most(self, drafter: DrafterSlot, limit: int) -> int:
        """The most tokens that a drafter is asked for; where their number is fixed, that many."""
        return min(limit, drafter.longest) if self.is_automatic else limit

    def _models_to_ask(
        self,
        texts: Sequence[TextDrafters],
        limits: Sequence[int],
        costs: Sequence[float],
        offered: Sequence[Sequence[Candidate]],
        worth: float,
        together: int,
    ) -> tuple[list[DrafterSlot | None], int, float, float]:
        """The models that are worth more than ``worth`` to ask, for how many tokens, their reading, what was expected.

        They are those of one name, in all texts but those for which one would have to read more than it is worth. A
        model ends by itself where it is not sure, so it is asked for as many tokens as would be worth most if it were.
        """
        found: tuple[list[DrafterSlot | None], int, float, float] = [None] * len(texts), 0, 0.0, 0.0
        for name in dict.fromkeys(model.name for text in texts for model in text.models):
            record = self.record(name)
            asked = [
                next((model for model in text.models if model.name == name and limit and model.drafter), None)
                for text, limit in zip(texts, limits, strict=True)
            ]
            most = max(
                (self._most(model, limit) for model, limit in zip(asked, limits, strict=True) if model), default=0
            )
            token = record.cost_of_token * self._share(record, sum(map(bool, asked)), together)
            drafting = [cost + length * token for length, cost in enumerate(costs[: most + 1])]
            sure = record.acceptance.share
            _, _, expected = self.best(_if_right(min(PRIOR_ACCEPTANCE, sure), most, asked, offered), drafting)
            promised = expected + record.gain
            if not any(asked) or promised <= worth:
                continue
            scale, reading = self._share(record, 1, together), 0.0
            for at, (text, model) in enumerate(zip(texts, asked, strict=True)):
                if model is None or len(model.missed) <= _CATCHING_UP:
                    continue
                passes = record.cost.reading * len(model.missed) * scale
                left = max(self._usual_cycles - text.cycles, text.cycles)
                if (promised - worth) * left * record.gaining >= self.rate * passes * together:
                    reading += passes
                else:
                    asked[at] = None
            if any(asked):
                count, _, _ = self.best(_if_right(min(1.0, sure), most, asked, offered), drafting)
                found, worth = (asked, max(1, count), reading, expected), promised
        return found

    def _share(self, record: Record, rows: int, together: int) -> float:
        """A model's pass over ``rows``, in its passes over one row, where plain passes serve ``together`` texts."""
        if together == 1:
            return 1.0
        curve = self.curve if record.cost.curve is None else record.cost.curve
        return (
            curve.seconds(max(1, rows), 0)
            / curve.seconds(1, 0)
            * self.curve.seconds(0, 0)
            / self.curve.seconds(together, 0)
        )

    def _guesses_of(
        self,
        asked: Sequence[DrafterSlot | None],
        count: int,
        limits: Sequence[int],
        together: int,
        draft: Draft,
    ) -> tuple[list[Candidate], float]:
        """What models propose, nothing for texts whose model is not asked, and the plain passes that this takes."""
        models = {at: model for at, model in enumerate(asked) if model is not None}
        before = {at: model.passes for at, model in models.items()}
        made = draft([(model, min(count, limits[at])) for at, model in models.items()])
        guesses, most = [NO_CANDIDATE] * len(asked), 0
        for (at, model), guess in zip(models.items(), made, strict=True):
            record = self.record(model.name)
            passes = model.passes - before[at] or len(guess.tokens)  # a drafter of another kind may not count them
            record.count(passes, len(guess.tokens))
            guesses[at] = Candidate(guess, record.acceptance.probabilities(guess.stated))
            most = max(most, passes)
        return guesses, most * record.cost.token * self._share(record, len(models), together)

    def _options(
        self, guess: Candidate, found: Candidate, look_ups: Sequence[DrafterSlot], limit: int
    ) -> list[Candidate]:
        """What a text can propose given a model's guess: this, perhaps continued by a look-up, or a look-up's own."""
        proposal, count = guess.proposal, len(guess.proposal.tokens)
        drawn = proposal.distribution
        if drawn is not None and len(drawn) > count:
            return [guess]  # a drawn token that the target does not have leaves its row, and nothing follows it
        if count and found.probabilities and found.proposal.tokens[0] != proposal.tokens[0]:
            found = Candidate(found.proposal, [_DOUBTED * found.probabilities[0], *found.probabilities[1:]])
        options = [guess] if drawn is not None else [guess, found]
        for each in look_ups if 0 < count < limit else ():
            more = each.extend(proposal.tokens, limit - count)
            if more.tokens:
                tokens, name = (*proposal.tokens, *more.tokens), f"{proposal.source}+{more.source}"
                longer = proposal._replace(tokens=tokens, source=name, probabilities=())
                likely = self.record(each.name).acceptance.probabilities(more.stated)
                options.append(Candidate(longer, [*guess.probabilities, *likely]))
        return options


def _taken(guess: Candidate, pick: Candidate, length: int) -> Proposal:
    """What is proposed, given a model's guess, the ``length`` that pays and the ``pick`` for it.

    Drawn drafts must always be used. Dropping some after seeing them would bias the output.
    """
    count, drawn = len(guess.proposal.tokens), guess.proposal.distribution
    if drawn is not None and len(drawn) > count:
        return guess.proposal
    if length <= count and tuple(pick.proposal.tokens[:count]) == tuple(guess.proposal.tokens):
        pick = guess  # without the look-up that would continue it
    return pick.proposal.cut(length if drawn is None else max(length, count))


def _cost_of(proposals: Sequence[Proposal], costs: Sequence[float]) -> float:
    return costs[max([len(proposal.tokens) for proposal in proposals])]


def _level(costs: list[float], least: int) -> list[float]:
    """Costs by draft length where as many drafts as ``least`` have their rows in any case."""
    return [costs[least]] * least + costs[least:] if least else costs


def _if_right(
    probability: float, most: int, asked: Sequence[object], offered: Sequence[Sequence[Candidate]]
) -> list[Sequence[Candidate]]:
    """What texts can propose if each token of a model is right with this probability; others have their look-ups."""
    guess = [Candidate(NOTHING, [probability] * most)]
    return [guess if model else own for model, own in zip(asked, offered, strict=True)]


def _accepted(candidate: Candidate, committed: Sequence[int]) -> float:
    """How many tokens of a candidate were right; those that outlast ``committed`` as far as they were promised."""
    right = accepted_length(candidate.proposal.tokens, committed)
    rest = candidate.probabilities[right:] if right == len(committed) else ()
    return right + Candidate(NOTHING, rest).expected(len(rest))[-1]
