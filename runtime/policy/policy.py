"""Which drafter proposes, and how far: one policy, for a text alone and for texts that share their passes.

    the drafters propose with stated probabilities -> the policy cuts and chooses -> the pass runs -> the policy learns

A pass over k drafts takes ``costs[k]`` plain passes, which was measured before (`PassCurve`). A proposal is worth the
tokens that it promises, less those that its time would usually give:

    worth(k) = p1 + p1 p2 + ... + p1 .. pk - rate (costs[k] - costs[0])        rate: usual tokens in a plain pass

Look-ups cost nothing and are always asked, draft models where that is expected to pay (`models`). What look-ups lose
against plain decoding is bounded by an account.

Acceptance is learnt, and nothing about time but how far passes with drafts are off the curve (`Drift`), which counts
only where it is far. So the same text is drafted in the same way every time.

Source: expected accepted length and its cost: Leviathan et al. 2023, sections 3.1 and 3.3; comparing with the usual
rate: Charnov 1976, the marginal value theorem.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from spectool.runtime.drafters.drafter import NOTHING, Proposal
from spectool.runtime.drafters.drafter_slot import DrafterSlot, TextDrafters
from spectool.runtime.policy.candidate import Candidate, best, cost_of, level_rows
from spectool.runtime.policy.curve import ASSUMED, FAR_OFF, FREE, Drift, PassCurve
from spectool.runtime.policy.models import Asked, Draft, Models, Offer, Prospect, draft_in_turn, is_against
from spectool.runtime.policy.record import DECAY, LossAccount, Record, Trials
from spectool.runtime.settings import LONGEST_DRAFT

_RATE_PRIOR = 16.0  # plain passes that the usual rate counts for at first, a quarter of a short answer
_TRUST = 0.6  # of what asking a model was worth is what it promised, if it keeps its word; the rest came true
_TEXT = 64.0  # cycles that a text is taken to last before one has ended


class Choice(NamedTuple):
    """What texts propose in a pass that they share, and what it costs."""

    texts: Sequence[TextDrafters]
    proposals: Sequence[Proposal]  # of each, with the probabilities that are believed
    cost: float = 1.0  # plain passes of these texts that the cycle takes, with the passes of a draft model
    look_ups: Sequence[Candidate] = ()  # the best proposal of the look-ups of each
    look_up_cost: float = 1.0  # plain passes with these, or what they are hoped to take where the curve is tried
    asked: Asked = Asked({})  # the draft models that were asked
    worth: float = 0.0  # what the proposals promise with what asking has cost, in tokens of one text
    others: float = 0.0  # plain passes that it takes besides, for rows that other texts have in it in any case
    drafting: float = 0.0  # plain passes that draft tokens of models have taken
    rests: bool = False  # nobody was asked, since there is to be no draft


class Policy:
    """Chooses proposals with one model, for one text after another or for several at a time.

    Attributes:
        curve: What passes cost.
        longest: The most draft tokens in a pass.
        account: What drafting may still lose.
        trials: What drafts against the curve may still lose.
        drifts: How far passes with drafts are off the curve, by the number of texts in them.
        records: What is known of drafters, by name.
    """

    def __init__(
        self, curve: PassCurve = FREE, longest: int = LONGEST_DRAFT, doubt: Callable[[], object] = lambda: None
    ) -> None:
        """Choose up to ``longest`` tokens by what passes cost; by default, all that is promised.

        Calls ``doubt`` when passes take another time than ``curve`` says.
        """
        self.curve, self.longest = curve, longest
        self.account, self.trials = LossAccount(), Trials()
        self.drifts = defaultdict[int, Drift](lambda: Drift(doubt))
        self._drafting = Drift(doubt)  # of passes of a draft model
        self.records = defaultdict[str, Record](Record)
        self._tokens = self._passes = _RATE_PRIOR
        self._usual_cycles = _TEXT  # of a text
        self._models = Models(curve, self.records)

    @property
    def rate(self) -> float:
        """Tokens that are usually written in the time of a plain pass; no fewer than without drafts."""
        return max(1.0, self._tokens / self._passes)

    @property
    def is_automatic(self) -> bool:
        """Whether drafts are as long as pays; otherwise, they are as long as was asked for."""
        return self.curve is not FREE

    def paused(self, texts: int = 1, least: int = 0) -> bool:
        """Whether the next pass over this many texts goes without drafts, so that no drafter need be asked.

        Where others in it have ``least`` drafts in any case, it is no plain pass that could be compared.
        """
        return self.account.left <= 0.0 or not self.longest or (not least and self.drifts[texts].wants_plain)

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
        if self.paused(together, least):
            return Choice([text for text, _ in texts], [NOTHING] * len(texts), rests=True)
        drafters = [text for text, _ in texts]
        limits = [min(limit, self.longest) for _, limit in texts]
        offered = [self.candidates(text.look_ups, limit) for text, limit in zip(drafters, limits, strict=True)]
        for text in drafters:
            text.cycles += 1
        context = max([text.context for text in drafters])
        costs = self.costs(max(least, *limits), context, texts=together, refed=refed)
        others = costs[least] - costs[0]  # for rows that the pass has in any case
        costs = [cost - others for cost in level_rows(costs, least)] if least else costs
        tried = costs
        if together == 1 and costs[-1] > FAR_OFF and self.curve is not ASSUMED:
            tried = self.trials.costs(costs, self.drifts[1].hoped(costs, 1 + refed))
        rate = self.rate
        length, picks, worth = best(offered, self.account.affordable(tried), rate)
        found = [pick.cut(length) for pick in picks] if length else picks
        proposals = [pick.believed for pick in found]
        if tried[length] < costs[length]:
            self.trials.begin(costs[length])
            return Choice(drafters, proposals, costs[length], found, tried[length])
        cost = cost_of(proposals, costs)
        chosen = Choice(drafters, proposals, cost, found, cost, others=others)
        if _model_of(drafters) is None:
            return chosen
        prospect = Prospect(list(map(Offer, drafters, limits, offered)), costs, rate, together, self._usual_cycles)
        if (asked := self._models.to_ask(prospect, worth)) is None:
            return chosen
        proposals, drafting, worth = self._models.ask(prospect, asked, draft)
        all_costs = drafting + cost_of(proposals, costs)
        # What a pass without drafts takes more than a plain one is taken to be the model's doing.
        return Choice(drafters, proposals, all_costs, found, cost - (costs[0] - 1.0), asked, worth, others, drafting)

    def costs(self, longest: int, context: int, *, texts: int = 1, refed: int = 0) -> list[float]:
        """Plain passes that a pass takes, by draft length, shape [longest + 1]."""
        drift = self.drifts[texts]
        found = self.curve.costs(longest, context, texts=texts, refed=refed, drift=drift.factor)
        return drift.corrected(found, 1 + refed)

    def candidates(self, look_ups: Sequence[DrafterSlot], limit: int) -> list[Candidate]:
        """What look-ups propose. They may be cut, so what they have drawn counts as a guess."""
        found = []
        for each in look_ups if limit else ():
            proposal = each.propose(self._models.most(each, limit))
            if proposal.distribution is not None:
                proposal = proposal._replace(distribution=None)
            found.append(Candidate(proposal, self.records[each.name].acceptance.probabilities(proposal.stated)))
        return found

    def learn(self, choice: Choice, committed: Sequence[Sequence[int]]) -> None:
        """Learn what became of a cycle: the tokens of each text, none for one that has failed or gone meanwhile."""
        cycles = [(at, tokens) for at, tokens in enumerate(committed) if tokens]
        if not cycles:
            return
        for at, tokens in cycles:
            text = choice.texts[at]
            for each in text.slots:
                if each.proposal.tokens:
                    against = each.is_model and is_against(each.proposal, text)
                    self.records[each.name].learn_acceptance(each.proposal, tokens, against=against)
        asked, model = choice.asked.models, _model_of(choice.texts)
        record = None if model is None else self.records[model.name]
        if record is not None and not asked:
            record.recover()
        if choice.rests:
            self.account.recover()
            return
        without = written = sum([len(tokens) for _, tokens in cycles]) / len(cycles)
        if asked and record is not None:
            without = sum(
                1.0 + choice.look_ups[at].accepted(tokens) if at in asked else len(tokens) for at, tokens in cycles
            ) / len(cycles)
            came_true = written - 1.0 - self.rate * (choice.cost - 1.0)
            # What came true is mostly luck, so what was promised counts as well, if the model keeps its word.
            trust = _TRUST * min(1.0, record.acceptance.share)
            worth = came_true + trust * (choice.worth - came_true)
            record.learn(worth - choice.asked.expected)
        self.account.charge(without - choice.look_up_cost, without)
        self._tokens = DECAY * self._tokens + written
        cost = (choice.cost if asked else choice.look_up_cost) + choice.asked.reading + choice.others
        self._passes = DECAY * self._passes + cost

    def observe(self, rows: int, seconds: float, context: int, *, drafted: bool, texts: int = 1) -> None:
        """Compare a pass with the curve; one over 0 ``rows`` of a text is a plain pass that began ahead."""
        if self.is_automatic:
            expected = self.curve.seconds(rows * texts, context)
            self._drafting.observe(rows, seconds, expected, drafted=False)
            self.trials.end(self.drifts[texts].observe(rows, seconds, expected, drafted=drafted))

    def observe_drafting(self, choice: Choice, seconds: float, texts: int = 1) -> None:
        """Compare how long a draft model took with what was measured, where so many ``texts`` share the pass."""
        if choice.drafting and not choice.asked.reading:
            record = self.records[next(iter(choice.asked.models.values())).name]
            measured = (choice.drafting + choice.asked.catching_up) / record.dearer  # plain passes
            expected = measured * self.curve.seconds(texts if texts > 1 else 0, 0)
            self._drafting.observe(0, seconds, expected, drafted=True)
            record.dearer = self._drafting.factor


def _model_of(texts: Sequence[TextDrafters]) -> DrafterSlot | None:
    """The draft model of the first text that has one: all that share a policy have the same."""
    return next((text.model for text in texts if text.model is not None), None)
