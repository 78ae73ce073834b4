"""What drafts would gain on a machine: a replayed text, by a curve of what its passes cost. A range, never a point."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from spectool.measure.machines import Machine
from spectool.measure.recorded import RecordedModel, Text, play
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Drafter
from spectool.runtime.policy.curve import FREE
from spectool.runtime.policy.policy import Policy
from spectool.runtime.settings import MAX_DRAFT_TOKENS

_LOOP = 0.03  # plain passes that a cycle may take besides: looking up, and reading the tokens
ALWAYS_UNKNOWN = (
    "heat: a hot machine takes longer for passes with drafts",
    "text: what your model writes may be easier or harder to guess than this",
)
_GAIN = 1.03  # the middle of a range that is called a gain
_EXAMPLE = 20  # tokens a second, where nobody knows how many it would be


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
    context: int = 0,
    progress: Callable[[int], object] = lambda tokens: None,
) -> Forecast:
    """Replay texts with the policy that generates here.

    Args:
        texts: What to replay, each after its prompt.
        machine: Where, with what a draft model costs there.
        look_ups: Dictionary and history.
        model: A draft model.
        context: Tokens before each prompt.
        progress: Called with the tokens that were replayed since the last time.
    """
    low, high = math.inf, 0.0
    for cost in machine.draft if model else machine.draft[:1]:
        policy = Policy(machine.curve) if machine.curve is not FREE else MAX_DRAFT_TOKENS
        played = play(texts, policy, look_ups, model, cost, context=context, progress=progress)
        counts = played.counts
        cheap, dear = (counts.passes + share * played.checking + played.drafting for share in machine.shares)
        low = min(low, counts.tokens / (dear + _LOOP * counts.passes))
        high = max(high, counts.tokens / max(1.0, cheap))
    return Forecast(low / (1 + machine.noise), high * (1 + machine.noise), counts)
