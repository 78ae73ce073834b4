"""The emulator: the generation loop with a text in the target's place.

Replaying text that is already written counts verification passes without running a model,
so it is exact, repeatable and independent of hardware.

Source: DictSpec, section 4.5 and 4.5.1 (emulated speed-up, draft coverage, mean accepted
length, acceptance rate).
"""

from collections.abc import Callable, Iterable, Sequence

from spectool.runtime.drafter import Drafter
from spectool.runtime.statistics import DraftStatistics


def accepted_length(proposal: Sequence[int], truth: Sequence[int], start: int) -> int:
    """Count how many proposed tokens equal ``truth[start:]``, up to the first that differs.

    >>> accepted_length([4, 5, 9], [1, 4, 5, 6], 1)
    2
    """
    length = 0
    for proposed, real in zip(proposal, truth[start:], strict=False):
        if proposed != real:
            break
        length += 1
    return length


def replay(
    documents: Iterable[Sequence[int]],
    drafter: Drafter,
    num_draft_tokens: int = 8,
    on_document: Callable[[int], None] | None = None,
) -> DraftStatistics:
    """Replay tokenized documents as if the target had written them.

    Every cycle commits the accepted prefix of the proposal and one more token, the one that
    the target itself would add. Each document is a generation of its own, without a prompt.
    Drafters do not know where a document ends: what they propose beyond it counts as rejected.

    Args:
        documents: Canonical target ids of each document.
        drafter: Whose proposals are verified.
        num_draft_tokens: Longest proposal, in tokens (gamma).
        on_document: Called after each document with its number of tokens.
    """
    statistics = DraftStatistics()
    for document in documents:
        drafter.start(())
        position, end = 0, len(document)
        while position < end:
            proposal = drafter.propose(num_draft_tokens)
            accepted = accepted_length(proposal.tokens, document, position)
            committed = document[position : position + accepted + 1]
            statistics.record(proposal.source, len(proposal.tokens), accepted, len(committed))
            drafter.commit(committed)
            position += len(committed)
        if on_document is not None:
            on_document(end)
    return statistics
