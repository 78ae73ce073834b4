"""Replays whose figures are known, and the emulator against a replay by definition."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectool.measure.replay import replay
from spectool.runtime.drafters.drafter import Drafter, DrafterSet, Proposal
from spectool.runtime.drafters.drafter_slot import DrafterSlot, TextDrafters
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.policy.policy import Policy
from spectool.tests.tiers import nightly


class Script(Drafter):
    """Proposes by a table of the last committed token."""

    def __init__(self, table: dict[int | None, list[int]], name: str = "script") -> None:
        self.name = name
        self.table = table
        self.seen: list[int] = []
        self.starts = 0

    def start(self, prompt: Sequence[int]) -> None:
        self.starts += 1
        self.seen = list(prompt)

    def propose(self, limit: int) -> Proposal:
        return Proposal(self.table.get(self.seen[-1] if self.seen else None, [])[:limit], self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        assert len(tokens) > 0
        self.seen.extend(tokens)


def test_limits_documents_and_callbacks() -> None:
    drafter = Script({None: [1, 2, 3]})
    ended: list[int] = []
    statistics = replay([[1, 2, 3], [], [1, 2, 3, 4]], drafter, 2, lambda tokens, cost: ended.append(tokens))
    # Each document starts anew, after nothing; 2 of 3 tokens are proposed, the target adds one.
    assert (statistics.passes, statistics.tokens, statistics.accepted) == (3, 7, 4)
    assert drafter.starts == 3
    assert ended == [3, 3, 1], "the tokens of each cycle"
    assert replay([[1, 2, 3]], drafter, 0).passes == 3
    assert (replay([], drafter).passes, replay([], drafter).tokens_per_pass) == (0, 0.0)


class Chosen(Drafter):
    """What a policy chooses of several drafters."""

    def __init__(self, drafters: DrafterSet, limit: int) -> None:
        self._text = TextDrafters([DrafterSlot(each) for each in drafters.members])
        self._policy = Policy(longest=limit)

    def start(self, prompt: Sequence[int]) -> None:
        self._text.start(prompt)

    def propose(self, limit: int) -> Proposal:
        self._choice = self._policy.choose([(self._text, limit)])
        return self._choice.proposals[0]

    def commit(self, tokens: Sequence[int]) -> None:
        self._policy.learn(self._choice, [tokens])
        self._text.follow(tokens)


def slow_replay(documents: Sequence[Sequence[int]], drafter: Drafter, limit: int) -> tuple[int, int, int, int]:
    """The twin: one token after the other, a pass whenever the proposal is used up or wrong."""
    passes = proposed = accepted = drafted = 0
    for document in documents:
        drafter.start(())
        position = 0
        while position < len(document):
            passes += 1
            guesses = list(drafter.propose(limit).tokens)
            proposed += len(guesses)
            drafted += bool(guesses)
            committed = []
            while position < len(document):
                token = document[position]
                position += 1
                committed.append(token)
                if guesses and guesses.pop(0) == token:
                    accepted += 1
                else:
                    break
            drafter.commit(committed)
    return passes, proposed, accepted, drafted


documents = st.lists(st.lists(st.integers(0, 3), max_size=40), max_size=4)
tables = st.dictionaries(st.one_of(st.none(), st.integers(0, 3)), st.lists(st.integers(0, 3), max_size=5), max_size=5)


@pytest.mark.parametrize("kind", ["hybrid", *nightly("script", "history")])
@given(documents=documents, table=tables, limit=st.integers(0, 6))
def test_equal_to_the_slow_twin(
    kind: str, documents: list[list[int]], table: dict[int | None, list[int]], limit: int
) -> None:
    def drafter() -> Drafter | DrafterSet:
        if kind == "script":
            return Script(table)
        if kind == "history":
            return LookupDrafter(history=True)
        return DrafterSet([Script(table), LookupDrafter(history=True)])

    statistics = replay(documents, drafter(), limit)
    found = (statistics.passes, statistics.proposed, statistics.accepted, statistics.drafted_passes)
    twin = drafter()
    assert found == slow_replay(documents, Chosen(twin, limit) if isinstance(twin, DrafterSet) else twin, limit)
    assert statistics.tokens == sum(map(len, documents))
    # Every pass commits its accepted tokens and one more, unless the text ends inside the proposal.
    ends = sum(1 for document in documents if document)
    assert 0 <= statistics.passes + statistics.accepted - statistics.tokens <= ends
    assert sum(statistics.proposed_by.values()) == statistics.proposed
    assert sum(statistics.accepted_by.values()) == statistics.accepted
