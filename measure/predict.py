"""What drafts would gain on a machine: a replayed text, by a curve of what its passes cost. A range, never a point.

A draft model's proposals are kept and used for every policy, curve and cost, because they depend on the text alone, but
for rounding where two tokens are nearly equal. Look-ups take microseconds and take part live, because what the history
has shown depends on where passes begin.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from spectool.measure.machines import NO_COST, Machine
from spectool.measure.replay import replay
from spectool.runtime.caches.text_cache import AT_ONCE
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.drafter import Drafter, DrafterSet, Proposal
from spectool.runtime.policy.curve import FREE
from spectool.runtime.policy.policy import Policy
from spectool.runtime.policy.record import DraftCost
from spectool.runtime.settings import LONGEST_DRAFT, MAX_DRAFT_TOKENS

_LOOP = 0.03  # plain passes that a cycle may take besides: looking up, and reading the tokens
ALWAYS_UNKNOWN = (
    "heat: a hot machine takes longer for passes with drafts",
    "text: what your model writes may be easier or harder to guess than this",
)
_GAIN = 1.03  # the middle of a range that is called a gain
_EXAMPLE = 20  # tokens a second, where nobody knows how many it would be


class Text(NamedTuple):
    """Token ids of the target: a prompt, and what a model has written, or might have written, after it."""

    prompt: Sequence[int]
    output: Sequence[int]


class RecordedModel(Drafter):
    """Proposes what a draft model does, which is asked for each number of tokens at a place of a text only once."""

    costs_a_pass, passes = True, 0

    def __init__(self, drafter: Drafter) -> None:
        """Ask ``drafter``."""
        self.name, self.longest, self.honesty = drafter.name, drafter.longest, drafter.honesty
        self.asked = list[tuple[int, int]]()  # each time in a replay: tokens that it had to read first, and its passes
        self._drafter = drafter
        self._said = dict[tuple[int, int], tuple[Proposal, int]]()  # with its passes, by place and number of tokens
        self.start(())

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a text."""
        self._text, self._place, self._unread = list[int](), 0, 0
        self.commit(prompt)

    def commit(self, tokens: Sequence[int]) -> None:
        """Follow the text."""
        self._text += tokens
        self._unread += len(tokens)
        for token in tokens:
            self._place = hash((self._place, token))

    def propose(self, limit: int) -> Proposal:
        """What the model proposes here."""
        if limit <= 0:
            return Proposal((), self.name)
        # Drafts in the target's own tokens are the same however many are asked for.
        asked = max(self.longest, limit) if isinstance(self._drafter, ModelDrafter) else limit
        if (self._place, asked) not in self._said:
            self._drafter.start(self._text)
            before = self._drafter.passes
            proposal = self._drafter.propose(asked)
            self._said[self._place, asked] = proposal, self._drafter.passes - before
        proposal, passes = self._said[self._place, asked]
        passes = min(passes, limit) if asked > limit else passes
        self.passes += passes
        self.asked.append((self._unread, passes))
        self._unread = 0
        return proposal.cut(limit)

    def plain_passes(self, cost: DraftCost) -> float:
        """How many plain passes of the target all of its passes take; the first of each time reads what is unread."""
        return sum(_reading(cost, unread) + cost.token * (passes - 1) for unread, passes in self.asked)


def _reading(cost: DraftCost, tokens: int) -> float:
    """Plain passes of the target that a pass of the draft model over some tokens takes."""
    if cost.curve is not None and tokens <= AT_ONCE:
        return cost.token * cost.curve.seconds(max(1, tokens), 0) / cost.curve.seconds(1, 0)
    return max(cost.token, cost.reading * tokens)


class Replayed(NamedTuple):
    """What a replay took, in the time of plain passes of the target."""

    counts: DraftStatistics
    checking: float  # of the target's passes, what they take more than as many plain ones
    drafting: float  # of the passes of the draft model


def play(
    texts: Sequence[Text],
    policy: Policy | int,
    look_ups: Drafter | None = None,
    model: RecordedModel | None = None,
    cost: DraftCost = NO_COST,
    *,
    progress: Callable[[int], object] = lambda tokens: None,
) -> Replayed:
    """Replay texts with dictionary and history, a draft model, or both.

    The ``policy`` chooses the drafts by its curve and learns from one text to the next, or is the number of draft
    tokens; ``cost`` is what passes of the ``model`` cost, in plain passes of the target.
    """
    checking = 0.0
    if model is not None:
        model.asked.clear()
        if isinstance(policy, Policy):
            policy.records[model.name].begin_model(cost, model.honesty)

    def on_cycle(tokens: int, plain_passes: float) -> None:
        nonlocal checking
        checking += plain_passes - 1.0
        progress(tokens)

    members = [each for each in (look_ups, model) if each is not None]
    outputs, prompts = [text.output for text in texts], [text.prompt for text in texts]
    counts = replay(outputs, DrafterSet(members), policy, on_cycle, prompts)
    return Replayed(counts, checking, model.plain_passes(cost) if model is not None else 0.0)


class Forecast(NamedTuple):
    """The speed that is expected, in times of plain decoding, and what was counted."""

    low: float
    high: float
    counts: DraftStatistics

    @property
    def range(self) -> str:
        """Both ends."""
        return f"{self.low:.2f} to {self.high:.2f}"

    def sentence(self, plain: float = _EXAMPLE) -> str:
        """What to expect of a model that writes ``plain`` tokens a second without drafts."""
        if self.low + self.high < 2 * _GAIN:
            return f"No gain expected: {self.range} times as fast as plain decoding."
        times = round(_EXAMPLE * (self.low + self.high) / 2) / _EXAMPLE
        return (
            f"About {times:g} times as fast: {plain:.3g} tokens a second would become {times * plain:.3g}. "
            f"The range is {self.range}."
        )


def spanning(forecasts: Iterable[Forecast]) -> Forecast:
    """The range over several machines, with the counts of the one on which most was drafted."""
    found = list(forecasts)
    counts = max((each.counts for each in found), key=lambda each: each.tokens_per_pass)
    return Forecast(min(each.low for each in found), max(each.high for each in found), counts)


def on_a_draft_model(look_ups: Forecast, model: Forecast, both: Forecast) -> str:
    """Whether a draft model is worth having, next to look-ups."""
    better = max(both, model, key=lambda each: each.low + each.high)
    if better.low + better.high < _GAIN * (look_ups.low + look_ups.high):
        return f"The draft model is not worth it: look-ups alone are {look_ups.range} times as fast."
    alone = ", best without look-ups (--no-dict --no-history)" * (better is model)
    return f"The draft model is worth it{alone}: look-ups alone are {look_ups.range} times as fast."


def predict(
    texts: Sequence[Text],
    machine: Machine,
    look_ups: Drafter | None = None,
    model: RecordedModel | None = None,
    *,
    progress: Callable[[int], object] = lambda tokens: None,
) -> Forecast:
    """Replay texts with the policy that generates here, and a draft model at what it costs on the ``machine``.

    The tokens of each cycle are told to ``progress``.
    """
    low, high, here = math.inf, 0.0, machine.costs
    longest = here.longest_exact if here and here.exact else LONGEST_DRAFT  # as `doctor --exact` has it
    for cost in machine.draft if model else machine.draft[:1]:
        policy = Policy(machine.curve, longest) if machine.curve is not FREE else MAX_DRAFT_TOKENS
        played = play(texts, policy, look_ups, model, cost, progress=progress)
        counts = played.counts
        cheap, dear = (counts.passes + share * played.checking + played.drafting for share in machine.shares)
        low = min(low, counts.tokens / (dear + _LOOP * counts.passes))
        high = max(high, counts.tokens / max(1.0, cheap))
    return Forecast(low / (1 + machine.noise), high * (1 + machine.noise), counts)
