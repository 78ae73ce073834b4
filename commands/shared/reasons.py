"""Why a text had few drafts, in a sentence for its last lines."""

from collections.abc import Sequence

from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Drafter
from spectool.runtime.policy.policy import Policy
from spectool.runtime.policy.record import PRIOR_ACCEPTANCE

_FEW = 0.25  # of the passes: with drafts in fewer of them, drafting has stopped


def few_drafts(statistics: DraftStatistics, drafters: Sequence[Drafter], context: int) -> str:
    """What kept a text of ``context`` tokens from being drafted; empty if it was, or if its length was fixed."""
    policy = statistics.policy
    if policy is None or not statistics.passes:
        return ""
    if statistics.proposed and statistics.drafted_passes < _FEW * statistics.passes:
        right = f"{statistics.accepted} of {statistics.proposed} guesses were right"
        if policy.paused():
            return f"drafting stopped: {right}, and wrong ones had cost as much time as they may"
        return f"drafting was rare: {right}, and {_dear(policy, context)}"
    unasked = [each for each in drafters if each.costs_a_pass and not each.passes]
    for model in unasked:
        cost = policy.record(model.name).cost
        costs = policy.costs(policy.longest, context)
        drafted = range(1, len(costs))
        gain = max(
            sum(PRIOR_ACCEPTANCE**j for j in range(1, k + 1)) - costs[k] + costs[0] - k * cost.token for k in drafted
        )
        if gain <= 0.0:
            token = f", and a token of the draft model {cost.token:.2f}" if cost.token >= 0.05 else ""
            return f"the draft model was never asked: {_dear(policy, context)}{token}"
        reading = cost.reading * context
        return (
            f"the draft model was never asked: it would have to read the text, as long as {reading:.1f} plain passes, "
            f"to gain {gain:.1f} in a pass, or look-ups promised more"
        )
    return "" if statistics.proposed else f"no guess was likely enough: {_dear(policy, context)}"


def _dear(policy: Policy, context: int) -> str:
    return f"a pass over two tokens takes {policy.costs(1, context)[1]:.1f} plain ones here"
