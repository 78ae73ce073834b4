"""What drafters would save on a text, without a target model: the text is replayed as if the target had written it.

Text that is already written is verified without running a model, so the passes are counted exactly, repeatably and
independently of hardware.

Source: DictSpec, section 4.5 and 4.5.1 (emulated speed-up, draft coverage, mean accepted length, acceptance rate).
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

from spectool.build.corpus_reading import encoded
from spectool.runtime.decoding.proposer import Proposer
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Drafter, Drafters, accepted_length, members_of
from spectool.runtime.drafters.guarded import GuardedDrafter
from spectool.runtime.policy.policy import Policy
from spectool.tokenization.tokenizer import Tokenizer


def encode_text(tokenizer: Tokenizer, texts: Iterable[str], limit: int = 0) -> list[list[int]]:
    """The canonical ids of documents, ``limit`` of all of them, so that the last one may be cut; all for 0."""
    documents, left = list[list[int]](), limit or sys.maxsize
    for _, ids in encoded(tokenizer, texts):
        documents.append(ids[:left])
        left -= len(ids)
        if left <= 0:
            break
    return documents


def replay(
    documents: Iterable[Sequence[int]],
    drafter: Drafter | Drafters,
    num_draft_tokens: int = 8,
    progress: Callable[[int], object] = lambda tokens: None,
    prompts: Iterable[Sequence[int]] | None = None,
) -> DraftStatistics:
    """Statistics of a drafter on tokenized documents, as if the target had written them.

    Every cycle commits the accepted prefix of the proposal and one more token, the one that the target itself would
    add. Each document is a generation of its own. Drafters do not know where a document ends, so what they propose
    beyond its end counts as rejected.

    Args:
        documents: Canonical target ids of each document.
        drafter: Proposes tokens, or several do.
        num_draft_tokens: Maximum number of them in a cycle.
        progress: Called after each cycle with the number of tokens that it committed.
        prompts: Target ids before each document, which are not counted; none by default.
    """
    statistics, policy = DraftStatistics(), Policy(longest=num_draft_tokens)
    proposer = Proposer([GuardedDrafter(each) for each in members_of(drafter)], policy)
    for prompt, document in zip(repeat(()) if prompts is None else prompts, documents, strict=False):
        proposer.start(prompt)
        position, end = 0, len(document)
        while position < end:
            proposal = proposer.propose(num_draft_tokens)
            truth = document[position : position + len(proposal.tokens) + 1]
            accepted = accepted_length(proposal.tokens, truth)
            committed = truth[: accepted + 1]
            statistics.record_pass(proposal.source, len(proposal.tokens))
            statistics.record_tokens(proposal.source, len(committed), accepted)
            proposer.commit(tuple(committed))
            position += len(committed)
            progress(len(committed))
    return statistics
