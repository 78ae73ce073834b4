"""Which draft models are asked, for how many tokens, and what is made of their guesses.

A model says how sure it is only after its passes are spent. So it is asked where that is expected to be worth more than
what the best look-up promises now. How sure it is where look-ups are was learnt offline, and what asking gains beyond
that is learnt as the target writes. Now and then a model is asked all the same, so that one which had bad luck is not
given up for long. A guess is cut or continued by look-ups.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from spectool.runtime.drafters.drafter import NOTHING, Proposal, accepted_length
from spectool.runtime.drafters.drafter_slot import LATEST, DrafterSlot, TextDrafters
from spectool.runtime.policy.candidate import NO_CANDIDATE, Candidate, best, level_of, level_rows, surest
from spectool.runtime.policy.curve import FREE, PassCurve
from spectool.runtime.policy.record import Record

_BELIEVED = (
    (0.06, 0.15, 0.31, 0.70),
    (0.15, 0.31, 0.58, 0.89),
    (0.25, 0.51, 0.81, 0.97),
    (0.37, 0.78, 0.95, 1.00),
    (0.60, 0.97, 1.00, 1.00),
)
"""How probable the best first token is once a model was asked: for each level of look-ups, in each quarter of places.

Gemma 3 270M on Polish, answers and people's text (``python benchmarks/draft_models_replay.py beliefs``), as if look-ups
and model erred independently."""
_FURTHER = 0.60, 0.67, 0.72, 0.77, 0.77, 0.77, 0.77
"""The same of each token after it, if those before are right."""
DOUBTED = 0.5  # of the probability of a look-up's tokens counts where a model has guessed, too
_CATCHING_UP = 8  # unread tokens that a model reads in the pass of its first draft; more take passes of their own
_ALL = 0.75  # of what a text gains by a model may be spent on reading all of it, rather than the latest tokens

Draft: TypeAlias = Callable[[Sequence[tuple[DrafterSlot, int]]], Sequence[Proposal]]


def draft_in_turn(asked: Sequence[tuple[DrafterSlot, int]]) -> list[Proposal]:
    """The proposals of several models, each with its limit, one after the other."""
    return [slot.propose(limit) for slot, limit in asked]


class Offer(NamedTuple):
    """What a text has before its model is asked."""

    drafters: TextDrafters
    limit: int  # tokens that it can propose, at most
    look_ups: Sequence[Candidate]  # what these propose


class Prospect(NamedTuple):
    """What is known of a pass over some texts before a model is asked."""

    texts: Sequence[Offer]
    costs: list[float]  # plain passes that it takes, by draft length
    rate: float  # tokens that are usually written in the time of a plain pass
    together: int  # texts in the pass, with those that have another policy
    usual_cycles: float  # of a text

    def expected(self, believed: float, most: int, asked: Container[int], token: float) -> float:
        """What the pass is worth on average, in tokens of one text, once models are asked for ``most`` tokens.

        These are ``believed`` times as probable as the table says, and each costs ``token`` plain passes, the first one
        even if it is dropped.
        """
        costs = [cost + max(0, length - 1) * token for length, cost in enumerate(self.costs[: most + 1])]
        worths = []
        for by_level in zip(*_BELIEVED, strict=True):
            offered = [
                [Candidate(NOTHING, [believed * each for each in (by_level[level_of(own)], *_FURTHER[: most - 1])])]
                if at in asked
                else own
                for at, (_, _, own) in enumerate(self.texts)
            ]
            worths.append(best(offered, costs, self.rate)[2])
        return sum(worths) / len(worths) - self.rate * token


class Asked(NamedTuple):
    """Models that are asked."""

    models: Mapping[int, DrafterSlot]  # by the place of the text
    most: int = 0  # tokens that they are asked for
    reading: float = 0.0  # plain passes that they take besides, to read what they have missed
    catching_up: float = 0.0  # plain passes that a few tokens add to their first ones
    expected: float = 0.0  # what asking would be worth, in tokens of one text, if nothing were known of them


class Models:
    """The draft models of a policy, of which ``records`` know what they have shown."""

    def __init__(self, curve: PassCurve, records: Mapping[str, Record]) -> None:
        self._curve, self._records = curve, records

    def most(self, drafter: DrafterSlot, limit: int) -> int:
        """The most tokens that a drafter is asked for; where their number is fixed, that many."""
        return limit if self._curve is FREE else min(limit, drafter.longest)

    def to_ask(self, prospect: Prospect, worth: float) -> Asked | None:
        """The models that are worth more than ``worth`` tokens of a text to ask, or are tried; None if there are none.

        They are those of all texts but those for which one would have to read more than it is worth.
        """
        texts, costs, rate = prospect.texts, prospect.costs, prospect.rate
        asked = {
            at: model
            for at, (drafters, limit, _) in enumerate(texts)
            if limit and (model := drafters.model) is not None and model.drafter is not None
        }
        if not asked:
            return None
        record = next(self._records[model.name] for model in asked.values())
        most = max([self.most(model, texts[at].limit) for at, model in asked.items()])
        token = record.cost_of_token * self._share(record, len(asked), prospect.together)
        drafting = [cost + length * token for length, cost in enumerate(costs[: most + 1])]
        expected = prospect.expected(record.believed, most, asked, token)
        promised = expected + record.gain
        # For as many tokens as would be worth most if it were sure of all, because it ends by itself where it is not.
        sure = [Candidate(NOTHING, [min(1.0, record.acceptance.share)] * most)]
        count = max(1, best([sure if at in asked else own for at, (_, _, own) in enumerate(texts)], drafting, rate)[0])
        gain = record.usual_gain(promised - worth)
        scale = record.cost.reading * self._share(record, 1, prospect.together)
        reading = dict[int, float]()  # plain passes that it takes
        for at, model in asked.items():
            unread = model.unread if model.unread > _CATCHING_UP else 0
            model.reads_all = self._pays(prospect, at, _ALL * gain, scale * unread)
            reading[at] = scale * (unread if model.reads_all else min(unread, LATEST))
        worthy = {at: model for at, model in asked.items() if self._pays(prospect, at, gain, reading[at])}
        tried = promised <= worth or not worthy
        worthy = worthy or dict([min(asked.items(), key=lambda each: reading[each[0]])])
        passes = sum([reading[at] for at in worthy])
        if tried and not record.may_try(drafting[count] - costs[0] + passes):
            return None
        return Asked(worthy, count, passes, scale * sum([model.unread for model in worthy.values()]), expected)

    def _pays(self, prospect: Prospect, at: int, gain: float, reading: float) -> bool:
        """Whether a text is likely to gain what it costs to read what its model has missed."""
        cycles = prospect.texts[at].drafters.cycles
        left = max(prospect.usual_cycles - cycles, cycles)
        return not reading or gain * left >= prospect.rate * reading * prospect.together

    def ask(self, prospect: Prospect, asked: Asked, draft: Draft) -> tuple[list[Proposal], float, float]:
        """The best proposals given what models guess, the plain passes that these take, and what all is worth."""
        models, texts = asked.models, prospect.texts
        before = [model.passes for model in models.values()]
        made = draft([(model, min(asked.most, texts[at].limit)) for at, model in models.items()])
        options, guesses, most, drawn = [text.look_ups for text in texts], dict[int, Candidate](), 0, 0
        for (at, model), guess, had in zip(models.items(), made, before, strict=True):
            record, count = self._records[model.name], len(guess.tokens)
            # A drafter of another kind may not count them, and one that has failed has none.
            passes = max(0, model.passes - had) or count
            record.count(passes, count)
            guesses[at] = Candidate(guess, record.acceptance.probabilities(guess.stated))
            options[at] = self._options(record, guesses[at], texts[at], self.most(model, texts[at].limit))
            most, drawn = max(most, passes), drawn if guess.distribution is None else max(drawn, count)
        drafting = most * record.cost.token * self._share(record, len(models), prospect.together)
        costs = level_rows(prospect.costs, drawn)  # drawn drafts have their rows in any case, which are paid for
        length, picks, worth = best(options, costs, prospect.rate)
        proposals = [_taken(guesses.get(at, NO_CANDIDATE), pick, length) for at, pick in enumerate(picks)]
        return proposals, drafting, worth - prospect.rate * (drafting + costs[0] - prospect.costs[0])

    def _share(self, record: Record, rows: int, together: int) -> float:
        """A model's pass over ``rows``, in its passes over one row, where plain passes serve ``together`` texts."""
        if together == 1:
            return 1.0
        target, curve = self._curve, record.cost.curve or self._curve
        rows_cost = curve.seconds(max(1, rows), 0) / curve.seconds(1, 0)
        return rows_cost * target.seconds(0, 0) / target.seconds(together, 0)

    def _options(self, record: Record, guess: Candidate, text: Offer, limit: int) -> list[Candidate]:
        """What a text can propose given a model's guess: this, perhaps continued by a look-up, or a look-up's own."""
        proposal, count = guess.proposal, len(guess.proposal.tokens)
        drawn = proposal.distribution
        if drawn is not None and len(drawn) > count:
            return [guess]  # a drawn token that the target does not have leaves its row, and nothing follows it
        found = surest(text.look_ups)
        if count and found.probabilities:
            if found.proposal.tokens[0] == proposal.tokens[0]:
                guess = guess._replace(probabilities=_confirmed(guess, found))
            else:
                found = found._replace(probabilities=[DOUBTED * found.probabilities[0], *found.probabilities[1:]])
                first, *rest = guess.probabilities
                guess = guess._replace(probabilities=[*record.against.probabilities([first]), *rest])
        options = [guess] if drawn is not None else [guess, found]
        for each in text.drafters.look_ups if 0 < count < limit else ():
            more = each.extend(proposal.tokens, limit - count)
            if more.tokens:
                tokens, name = (*proposal.tokens, *more.tokens), f"{proposal.source}+{more.source}"
                longer = proposal._replace(tokens=tokens, source=name, probabilities=())
                likely = self._records[each.name].acceptance.probabilities(more.stated)
                options.append(Candidate(longer, [*guess.probabilities, *likely]))
        return options


def is_against(guess: Proposal, drafters: TextDrafters) -> bool:
    """Whether look-ups have guesses for the first token of a model's, and none of them is the same."""
    found = [each.proposal.tokens[0] for each in drafters.look_ups if each.proposal.tokens]
    return bool(guess.tokens and found) and guess.tokens[0] not in found


def _confirmed(guess: Candidate, found: Candidate) -> list[float]:
    """How probable a model's tokens are where a look-up has found the same."""
    probabilities = list(guess.probabilities)
    same = accepted_length(guess.proposal.tokens, found.proposal.tokens)
    for at, other in enumerate(found.probabilities[:same]):
        probabilities[at] += DOUBTED * other * (1.0 - probabilities[at])
    return probabilities


def _taken(guess: Candidate, pick: Candidate, length: int) -> Proposal:
    """What is proposed, given a model's guess, the ``length`` that pays and the ``pick`` for it.

    Drawn drafts must always be used. Dropping some after seeing them would bias the output.
    """
    count, drawn = len(guess.proposal.tokens), guess.proposal.distribution
    if drawn is not None and len(drawn) > count:
        return guess.proposal
    if length <= count and tuple(pick.proposal.tokens[:count]) == tuple(guess.proposal.tokens):
        pick = Candidate(guess.proposal, pick.probabilities[:count])  # without the look-up that would continue it
    return pick.believed.cut(length if drawn is None else max(length, count))
