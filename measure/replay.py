"""What drafters would save on a text, without a target model: the text is replayed as if the target had written it.

Source: DictSpec, section 4.5 and 4.5.1 (emulated speed-up, draft coverage, mean accepted length, acceptance rate).
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Drafter, DrafterSet, accepted_length, members_of
from spectool.runtime.drafters.drafter_slot import DrafterSlot, TextDrafters
from spectool.runtime.policy.policy import Policy


def replay(
    documents: Iterable[Sequence[int]],
    drafter: Drafter | DrafterSet,
    policy: Policy | int = 8,
    on_cycle: Callable[[int, float], object] = lambda tokens, cost: None,
    prompts: Iterable[Sequence[int]] | None = None,
) -> DraftStatistics:
    """Statistics of a drafter on tokenized documents, as if the target had written them after their ``prompts``.

    Each document is a generation of its own, and what is proposed beyond its end counts as rejected. The ``policy``
    chooses how far to draft, or is the most draft tokens in a cycle. ``on_cycle`` gets the tokens of a cycle, and the
    plain passes that its pass takes by the policy's curve.
    """
    statistics = DraftStatistics()
    policy = policy if isinstance(policy, Policy) else Policy(longest=policy)
    text = TextDrafters([DrafterSlot(each) for each in members_of(drafter)])
    for prompt, document in zip(repeat(()) if prompts is None else prompts, documents, strict=False):
        text.start(prompt)
        position, end = 0, len(document)
        while position < end:
            choice = policy.choose([(text, policy.longest)])
            proposal = choice.proposals[0]
            truth = document[position : position + len(proposal.tokens) + 1]
            accepted = accepted_length(proposal.tokens, truth)
            committed = tuple(truth[: accepted + 1])
            statistics.record_pass(proposal.source, len(proposal.tokens))
            statistics.record_tokens(proposal.source, len(committed), accepted)
            policy.learn(choice, [committed])
            rows = len(proposal.tokens) + 1
            cost = 1.0 if choice.rests else policy.curve.costs(rows - 1, text.context)[-1]
            policy.observe(rows, policy.curve.seconds(rows, text.context), text.context, drafted=rows > 1)
            text.follow(committed)
            position += len(committed)
            on_cycle(len(committed), cost)
        policy.end(text)
    return statistics
