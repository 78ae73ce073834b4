"""What texts propose for a pass: what a grammar leaves no choice about, or what policies choose of their drafts."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from spectool.runtime.decoding.text import Text
from spectool.runtime.drafters.drafter_slot import TextDrafters
from spectool.runtime.policy.models import Draft
from spectool.runtime.policy.policy import Choice, Policy


class Decision(NamedTuple):
    """What a policy has chosen for some texts of a pass, and learns from once their tokens are known."""

    policy: Policy
    choice: Choice
    texts: Sequence[Text]

    def learn(self) -> None:
        """Learn from what the pass committed to each text."""
        self.policy.learn(self.choice, [text.gained for text in self.texts])


def propose(texts: Sequence[Text], policy: Policy, draft: Draft, width: int = sys.maxsize) -> list[Decision]:
    """Give each text its proposal for a pass over at most ``width`` tokens of each; return what was decided about it.

    A text with another policy than ``policy``, such as a fixed length, is asked first, as if it were alone. The pass
    has its rows in any case. ``draft`` asks draft models.
    """
    rows = refed = 0  # of texts that are not asked together, and fed again in those that are
    decisions: list[Decision] = []
    asked: list[Text] = []
    drafters: list[tuple[TextDrafters, int]] = []  # theirs, and the most tokens that each can propose
    for text in texts:
        again = len(text.refeed)
        limit = max(0, min(text.most_drafts(), width - 1 - again))
        proposal = None if text.constraint is None else text.forced(limit)
        if proposal is None and text.policy is policy:
            refed = max(refed, again)
            asked.append(text)
            drafters.append((text.drafters, limit))
            continue
        if proposal is None:
            choice = text.policy.choose([(text.drafters, limit)], refed=again)
            decisions.append(Decision(text.policy, choice, [text]))
            proposal = text.allowed(choice.proposals[0])
        text.proposal, rows = proposal, max(rows, again + len(proposal.tokens))
    if asked:
        least = max(0, rows - refed)
        choice = policy.choose(drafters, together=len(texts), refed=refed, least=least, draft=draft)
        decisions.append(Decision(policy, choice, asked))
        for text, proposal in zip(asked, choice.proposals, strict=True):
            text.proposal = text.allowed(proposal)
    return decisions
