"""The emulator: the generation loop with a text in the target's place.

Replaying text that is already written counts verification passes without running a model,
so it is exact, repeatable and independent of hardware.

Source: DictSpec, section 4.5 and 4.5.1 (emulated speed-up, draft coverage, mean accepted
length, acceptance rate).
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

from spectool.runtime.decoding.drafter import Drafter, accepted_length
from spectool.runtime.decoding.statistics import DraftStatistics


def replay(
    documents: Iterable[Sequence[int]],
    drafter: Drafter,
    num_draft_tokens: int = 8,
    on_document: Callable[[int], object] = lambda tokens: None,
    prompts: Iterable[Sequence[int]] | None = None,
) -> DraftStatistics:
    """Replay tokenized documents as if the target had written them.

    Every cycle commits the accepted prefix of the proposal and one more token, the one that
    the target itself would add. Each document is a generation of its own.
    Drafters do not know where a document ends: what they propose beyond it counts as rejected.

    Args:
        documents: Canonical target ids of each document.
        drafter: Whose proposals are verified.
        num_draft_tokens: Longest proposal, in tokens (gamma).
        on_document: Called after each document with its number of tokens.
        prompts: Target ids that stand before each document and are not counted; none by default.
    """
    statistics = DraftStatistics()
    for prompt, document in zip(repeat(()) if prompts is None else prompts, documents, strict=False):
        drafter.start(prompt)
        position, end = 0, len(document)
        while position < end:
            proposal = drafter.propose(num_draft_tokens)
            truth = document[position : position + len(proposal.tokens) + 1]
            accepted = accepted_length(proposal.tokens, truth)
            committed = truth[: accepted + 1]
            statistics.record(proposal.source, len(proposal.tokens), accepted, len(committed))
            drafter.commit(committed)
            position += len(committed)
        on_document(end)
    return statistics
