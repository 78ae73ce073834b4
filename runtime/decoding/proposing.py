"""What texts propose for a pass: what a grammar leaves no choice about, or what policies choose of their drafts."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from spectool.runtime.decoding.row import Row
from spectool.runtime.drafters.drafter import NOTHING
from spectool.runtime.drafters.drafter_slot import TextDrafters
from spectool.runtime.policy.models import Draft
from spectool.runtime.policy.policy import Choice, Policy


class Decision(NamedTuple):
    """What a policy has chosen for some texts of a pass, and learns from once their tokens are known."""

    policy: Policy
    choice: Choice
    rows: Sequence[Row]

    def learn(self) -> None:
        """Learn from what the pass committed to each text."""
        self.policy.learn(self.choice, [row.gained for row in self.rows])


def propose(rows: Sequence[Row], policy: Policy, draft: Draft, width: int = sys.maxsize) -> list[Decision]:
    """Give each text its proposal for a pass over ``rows``, and return what was decided about it.

    A text with a policy of its own, such as a fixed length, is asked first, as if it were alone. The pass has its rows
    in any case.

    Args:
        rows: The texts.
        policy: Chooses for all texts that have no other.
        draft: Asks draft models.
        width: Tokens of a text that the pass can have.
    """
    least = refed = 0
    decisions: list[Decision] = []
    asked: list[Row] = []
    texts: list[tuple[TextDrafters, int]] = []
    for row in rows:
        text, again = row.text, len(row.refeed)
        refed = max(refed, again)
        limit = min(row.most_drafts(), width - 1 - again)
        forced = None if text.constraint is None else text.forced(limit)
        if forced is None and text.policy is policy:
            asked.append(row)
            texts.append((text.drafters, limit))
            continue
        if forced is None:
            choice = text.policy.choose([(text.drafters, limit)], refed=again)
            decisions.append(Decision(text.policy, choice, [row]))
            forced = text.allowed(choice.proposal)
        row.proposal, least = forced, max(least, len(forced.tokens))
    if asked:
        choice = policy.choose(texts, together=len(rows), refed=refed, least=least, draft=draft)
        decisions.append(Decision(policy, choice, asked))
        for row, proposal in zip(asked, choice.proposals, strict=True):
            row.proposal = row.text.allowed(proposal)
    return decisions


def plain(row: Row) -> Decision:
    """The decision that a text goes without drafts."""
    return Decision(row.text.policy, Choice([row.text.drafters], [NOTHING], rests=True), [row])
