"""Prompt look-up equals vLLM's rule written out, and the hybrid asks it only where the first drafter is silent."""

from hypothesis import given
from hypothesis import strategies as st

from spectool.lab.prompt_lookup import FallbackDrafter, PromptLookupDrafter
from spectool.measure.replay import replay
from spectool.runtime.drafters.drafter import Proposal
from spectool.runtime.sampling.samplers import Sampling
from spectool.runtime.sampling.verification import Draw


def by_the_rule(tokens: list[int], shortest: int, longest: int, limit: int) -> list[int]:
    """The twin: the longest suffix that occurs earlier, its earliest occurrence, what followed there."""
    for length in range(min(longest, len(tokens) - 1), shortest - 1, -1):
        suffix = tokens[len(tokens) - length :]
        for start in range(len(tokens) - length):
            if tokens[start : start + length] == suffix:
                return tokens[start + length : start + length + limit]
    return []


texts = st.lists(st.integers(0, 2), min_size=1, max_size=40)


@given(texts, texts, st.integers(1, 3), st.integers(0, 3), st.integers(0, 6))
def test_equals_the_rule(prompt: list[int], text: list[int], shortest: int, more: int, limit: int) -> None:
    drafter = PromptLookupDrafter(shortest, shortest + more)
    drafter.start(prompt)
    for place in range(len(text)):
        expected = by_the_rule([*prompt, *text[:place]], shortest, shortest + more, limit)
        assert list(drafter.propose(limit).tokens) == expected
        drafter.commit([text[place]])
    drafter.start([])
    assert drafter.propose(limit).tokens == (), "nothing of an earlier text is left"


class Knows(PromptLookupDrafter):
    """Proposes one token after certain ones."""

    name = "dictionary"

    def propose(self, limit: int) -> Proposal:
        last = self._tokens[-1:]
        return Proposal((10,) if last == [9] else (), self.name)


def test_the_hybrid_asks_only_where_the_first_is_silent() -> None:
    text = [1, 2, 3, 4, 5, 9, 10, 1, 2, 3, 4, 5, 9, 10, 11]
    drafter = FallbackDrafter([Knows(), PromptLookupDrafter()])
    assert drafter.name == "dictionary, else prompt look-up"
    statistics = replay([text, text], drafter, 4)
    # Passes of each text: 1 2 3 4 5 one by one, 9 10 with what follows, 1 .. 5 again, then five repeat.
    assert set(statistics.proposed_by) == {"dictionary", "prompt look-up"}
    sources: list[str] = []
    drafter.start(())
    for place, token in enumerate(text):
        proposal = drafter.propose(4)
        sources += [proposal.source] if proposal.tokens else []
        assert proposal.source != "prompt look-up" or text[place - 1] != 9, "the dictionary knows what follows 9"
        drafter.commit([token])
    assert sources == ["dictionary", "prompt look-up", "dictionary", "prompt look-up"]


def test_a_draft_model_before_it_draws_its_drafts() -> None:
    told = []

    class Draws(Knows):
        def draw_with(self, draw: object) -> None:
            told.append(draw)

    draw = Draw(Sampling(0.7), (), 16)
    FallbackDrafter([Draws(), PromptLookupDrafter()]).draw_with(draw)
    assert told == [draw]
