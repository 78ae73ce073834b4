"""Why a text had few drafts, in a sentence for its last lines."""

from collections.abc import Sequence

from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Drafter
from spectool.runtime.policy.policy import Policy

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
    for model in drafters:
        if model.costs_a_pass and not model.passes:
            cost = policy.record(model.name).cost
            return (
                f"the draft model was never asked: {_dear(policy, context)}, a token of the draft model "
                f"{cost.token:.2f}, and reading the text {cost.reading * context:.1f}"
            )
    return "" if statistics.proposed else f"no guess was likely enough: {_dear(policy, context)}"


def _dear(policy: Policy, context: int) -> str:
    return f"a pass over two tokens takes {policy.costs(1, context)[1]:.1f} plain ones here"
