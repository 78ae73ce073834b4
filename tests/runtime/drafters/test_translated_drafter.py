"""A source and a translator as a drafter: order of calls, cuts, and inside the emulator."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from spectool.lab.ngram_model import DraftSource
from spectool.lab.strategies import ContextTranslator, NaiveTranslator, PassThrough
from spectool.measure.replay import replay
from spectool.runtime.drafters.drafter import Drafter, DrafterSet
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.translation.byte_aligned import FirstTokenRule
from spectool.tokenization.tokenizer import Tokenizer


class Scripted:
    """A translator that doubles every draft id."""

    name = "scripted"
    string_calls = 0

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.context: list[int] = []

    def _note(self, method: str, *values: object) -> None:
        self.calls.append((method, *values))

    def start(self) -> None:
        self.context = []
        self._note("start")

    def commit(self, tokens: Sequence[int]) -> None:
        self._note("commit", list(tokens))
        self.context += tokens

    def unchanged(self) -> int:
        return 0

    def draft_context(self) -> Sequence[int]:
        self._note("draft_context")
        return self.context

    def constraint(self) -> FirstTokenRule:
        self._note("constraint")
        return FirstTokenRule(allows=self._allows)

    def _allows(self, token: int, healed: bool) -> bool:
        self._note("allows", token, healed)
        return token != 13

    def is_settled(self, tokens: Sequence[int]) -> bool:
        return True

    def translate(self, drafts: Sequence[int], healed: bool = False) -> list[int]:
        self._note("translate", list(drafts), healed)
        return [token for token in drafts for _ in range(2)]


class Guesses(DraftSource):
    """A source that guesses the same ids each time; asks ``allows`` about the first."""

    def __init__(self, ids: Sequence[int], healed: bool = False) -> None:
        self.ids = list(ids)
        self.healed = healed
        self.asked: list[tuple[list[int], int]] = []

    def draft(self, context: Sequence[int], constraint: FirstTokenRule, limit: int) -> tuple[list[int], bool]:
        self.asked.append((list(context), limit))
        drafts = self.ids[:limit]
        if drafts and not constraint.allows(drafts[0], self.healed):
            return [], self.healed
        return drafts, self.healed


def test_one_cycle_after_the_other() -> None:
    source, translator = Guesses([7, 8, 9], healed=True), Scripted()
    drafter = TranslatedDrafter(source, translator, 2)
    assert isinstance(drafter, Drafter)
    drafter.start([1, 2])
    proposal = drafter.propose(100)
    assert (proposal.tokens, proposal.source) == ([7, 7, 8, 8], "model")
    drafter.commit([7, 3])
    assert drafter.propose(3).tokens == [7, 7, 8], "cut to the limit"
    assert source.asked == [([1, 2], 2), ([1, 2, 7, 3], 2)], "the limit of target tokens is not the draft's"
    cycle = [("draft_context",), ("constraint",), ("allows", 7, True), ("translate", [7, 8], True)]
    assert translator.calls == [("start",), ("commit", [1, 2]), *cycle, ("commit", [7, 3]), *cycle]


def test_nothing_to_propose() -> None:
    source, translator = Guesses([]), Scripted()
    drafter = TranslatedDrafter(source, translator)
    drafter.start(())
    assert list(drafter.propose(0).tokens) == []
    assert source.asked == []
    assert list(drafter.propose(5).tokens) == []
    source.ids = [13]
    assert list(drafter.propose(5).tokens) == [], "the boundary check refused it"
    assert "translate" not in [call[0] for call in translator.calls]  # type: ignore[index]


@pytest.mark.parametrize("failing", ["commit", "unchanged", "constraint"])
def test_a_text_that_could_not_be_translated_is_begun_again(failing: str) -> None:
    translator = Scripted()
    drafter = TranslatedDrafter(Guesses([]), translator)
    drafter.start([1])
    setattr(translator, failing, lambda *tokens: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        drafter.propose(1)
        drafter.commit([2])
    delattr(translator, failing)
    drafter.start([1, 2, 3])
    assert translator.calls[-2:] == [("start",), ("commit", [1, 2, 3])]


def test_what_the_cache_holds_of_a_prompt_is_known_in_proportion() -> None:
    source, translator = Guesses([]), Scripted()
    source.cache = SimpleNamespace(tokens=[5, 6])  # type: ignore[assignment]
    drafter = TranslatedDrafter(source, translator)
    drafter.start([5, 6, 7, 8])
    assert drafter.known([5, 6, 7, 8, 9]) == 2 and drafter.known([5, 1]) == 1 and drafter.known([1]) == 0


class Knows(DraftSource):
    """A source that knows the whole text in draft ids; its place is the length of the context."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = list(ids)

    def draft(self, context: Sequence[int], constraint: FirstTokenRule, limit: int) -> tuple[list[int], bool]:
        return self.ids[len(context) : len(context) + limit], False


def test_in_the_emulator_and_in_a_hybrid(real: Callable[[str], Tokenizer]) -> None:
    """With one tokenizer on both sides every strategy but the naive one loses nothing."""
    tokenizer = real("gpt2")
    text = tokenizer.encode("The quick brown fox jumps over the lazy dog, again and again and again.")
    for strategy in (PassThrough, NaiveTranslator, ContextTranslator):
        translator = strategy(tokenizer, tokenizer)
        drafter = TranslatedDrafter(Knows(text), translator, 3)
        statistics = replay([text, text], DrafterSet([drafter]), 8)
        assert statistics.tokens_per_pass > 3.5
        assert (translator.string_calls == 0) == (strategy is PassThrough)
    assert statistics.proposed_by.keys() == {"model"}
