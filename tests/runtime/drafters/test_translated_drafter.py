"""A source and a translator as a drafter: order of calls, cuts, counts, and inside the emulator."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from spectool.measure.emulate import CountedTranslator, TranslationCounts, replay
from spectool.runtime.decoding.drafter import Drafter
from spectool.runtime.drafters.hybrid import HybridDrafter
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.translation.protocol import Constraint, DraftContext, DraftSource, Translator
from spectool.runtime.translation.strings import ContextTranslator, NaiveTranslator, PassThrough
from spectool.tokenization import Tokenizer


class Scripted:
    """A translator that doubles every draft id and touches text where it is told to."""

    name = "scripted"

    def __init__(self, strings_in: Sequence[str] = (), seconds: float = 0.0) -> None:
        self.string_calls = 0
        self.calls: list[object] = []
        self.context: list[int] = []
        self._strings_in = strings_in
        self._seconds = seconds

    def _note(self, method: str, *values: object) -> None:
        self.calls.append((method, *values))
        self.string_calls += method in self._strings_in
        time.sleep(self._seconds)

    def start(self) -> None:
        self.string_calls = 0
        self.context = []
        self._note("start")

    def commit(self, tokens: Sequence[int]) -> None:
        self._note("commit", list(tokens))
        self.context += tokens

    def draft_context(self) -> DraftContext:
        self._note("draft_context")
        return DraftContext(self.context, 0)

    def constraint(self) -> Constraint:
        self._note("constraint")
        return Constraint(allows=self._allows)

    def _allows(self, token: int, healed: bool) -> bool:
        self._note("allows", token, healed)
        return token != 13

    def translate(self, drafts: Sequence[int], healed: bool = False) -> list[int]:
        self._note("translate", list(drafts), healed)
        return [token for token in drafts for _ in range(2)]


class Guesses(DraftSource):
    """A source that guesses the same ids each time; asks ``allows`` about the first."""

    def __init__(self, ids: Sequence[int], healed: bool = False) -> None:
        self.ids = list(ids)
        self.healed = healed
        self.asked: list[tuple[list[int], int]] = []
        self.starts = 0

    def start(self) -> None:
        self.starts += 1

    def draft(self, context: DraftContext, constraint: Constraint, limit: int) -> tuple[list[int], bool]:
        self.asked.append((list(context.ids), limit))
        drafts = self.ids[:limit]
        if drafts and not constraint.allows(drafts[0], self.healed):
            return [], self.healed
        return drafts, self.healed


class CountedDrafter(TranslatedDrafter):
    """A translated drafter whose translator is counted."""

    def __init__(
        self, source: DraftSource, translator: Any, length: int | None = None, name: str | None = None
    ) -> None:
        counted = CountedTranslator(translator)
        assert isinstance(counted, Translator)
        super().__init__(source, counted, length, name=name)
        self.counts = counted.counts


def test_one_cycle_after_the_other() -> None:
    source, translator = Guesses([7, 8, 9], healed=True), Scripted()
    assert isinstance(source, DraftSource)
    drafter = CountedDrafter(source, translator, 2)
    assert isinstance(drafter, Drafter)
    drafter.start([1, 2])
    proposal = drafter.propose(100)
    assert (proposal.tokens, proposal.source) == ([7, 7, 8, 8], "scripted")
    drafter.commit([7, 3])
    assert drafter.propose(3).tokens == [7, 7, 8], "cut to the limit"
    assert source.asked == [([1, 2], 2), ([1, 2, 7, 3], 2)], "the limit of target tokens is not the draft's"
    cycle = [("draft_context",), ("constraint",), ("allows", 7, True), ("translate", [7, 8], True)]
    assert translator.calls == [("start",), ("commit", [1, 2]), *cycle, ("commit", [7, 3]), *cycle]
    assert source.starts == 1
    assert (drafter.counts.cycles, drafter.counts.drafted, drafter.counts.translated) == (2, 4, 8)
    assert drafter.counts.without_proposal == 0


def test_as_many_drafts_as_target_tokens_are_asked_for() -> None:
    source = Guesses([7, 8, 9])
    drafter = CountedDrafter(source, Scripted())
    drafter.start([1])
    drafter.propose(3)
    drafter.propose(12)
    assert [limit for _, limit in source.asked] == [3, 12]


def test_nothing_to_propose() -> None:
    source, translator = Guesses([]), Scripted()
    drafter = CountedDrafter(source, translator)
    drafter.start(())
    assert translator.calls == [("start",)], "an empty prompt is not committed"
    assert list(drafter.propose(0).tokens) == []
    assert source.asked == []
    assert list(drafter.propose(5).tokens) == []
    source.ids = [13]
    assert list(drafter.propose(5).tokens) == [], "the boundary check refused it"
    assert (drafter.counts.cycles, drafter.counts.without_proposal) == (2, 1.0)
    assert "translate" not in [call[0] for call in translator.calls]  # type: ignore[index]


@pytest.mark.parametrize("method", ["draft_context", "constraint", "allows", "translate", "commit"])
def test_a_cycle_with_string_work_counts_once(method: str) -> None:
    for strings_in in ([method], [method, "translate", "commit"]):
        drafter = CountedDrafter(Guesses([1]), Scripted(strings_in))
        drafter.start([5, 6])
        for _ in range(3):
            drafter.propose(4)
            drafter.commit([1])
        assert drafter.counts.with_strings == drafter.counts.cycles == 3
        assert drafter.counts.string_free == 0.0


def test_string_work_outside_the_cycles_is_not_theirs() -> None:
    drafter = CountedDrafter(Guesses([1]), Scripted(["start"]))
    drafter.start([5, 6])
    drafter.propose(4)
    drafter.commit([1])
    assert drafter.counts.string_free == 1.0
    translator = Scripted()
    idle = CountedDrafter(Guesses([1]), translator)
    idle.start(())
    idle.propose(4)
    idle.commit([1])
    translator._strings_in = ["commit"]
    idle.propose(0)
    idle.commit([1])
    assert (idle.counts.cycles, idle.counts.string_free) == (1, 1.0), "a plain step is no cycle"
    prompt_only = CountedDrafter(Guesses([1]), Scripted(["commit"]))
    prompt_only.start([5, 6])
    prompt_only.propose(4)
    assert prompt_only.counts.string_free == 1.0


def test_generations_add_up() -> None:
    drafter = CountedDrafter(Guesses([1]), Scripted(["commit"]))
    for cycles in (2, 3):
        drafter.start(())
        for _ in range(cycles):
            drafter.propose(4)
            drafter.commit([1])
    counts = drafter.counts
    assert (counts.cycles, counts.with_strings, counts.with_proposal, counts.translated) == (5, 5, 5, 10)
    assert counts.nanoseconds > 0
    assert TranslationCounts(cycles=11, nanoseconds=66000).microseconds_per_cycle == 6.0
    assert TranslationCounts().microseconds_per_cycle == TranslationCounts().string_free == 0.0


def test_the_clock_runs_in_the_translator_alone() -> None:
    class Slow(Guesses):
        def draft(self, context: DraftContext, constraint: Constraint, limit: int) -> tuple[list[int], bool]:
            time.sleep(0.2)
            return super().draft(context, constraint, limit)

    drafter = CountedDrafter(Slow([1]), Scripted(seconds=0.01))
    drafter.start([1])
    drafter.propose(4)
    drafter.commit([1])
    assert 5 * 0.01e9 <= drafter.counts.nanoseconds < 0.2e9, "five calls of 10 ms each"


def test_names_and_cost() -> None:
    source = Guesses([1])
    assert not CountedDrafter(source, Scripted()).costs_a_pass
    source.costs_a_pass = True  # type: ignore[attr-defined]
    drafter = CountedDrafter(source, Scripted(), name="qwen")
    assert drafter.costs_a_pass
    assert (drafter.name, drafter.propose(1).source) == ("qwen", "qwen")


class Knows(DraftSource):
    """A source that knows the whole text in draft ids; its place is the length of the context."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = list(ids)

    def start(self) -> None:
        """No state."""

    def draft(self, context: DraftContext, constraint: Constraint, limit: int) -> tuple[list[int], bool]:
        return self.ids[len(context.ids) : len(context.ids) + limit], False


def test_in_the_emulator_and_in_a_hybrid(real: Callable[[str], Tokenizer]) -> None:
    """With one tokenizer on both sides every strategy but the naive one loses nothing."""
    tokenizer = real("gpt2")
    text = tokenizer.encode("The quick brown fox jumps over the lazy dog, again and again and again.")
    for strategy in (PassThrough, NaiveTranslator, ContextTranslator):
        drafter = CountedDrafter(Knows(text), strategy(tokenizer, tokenizer), 3)
        statistics = replay([text, text], HybridDrafter([drafter]), 8)
        assert statistics.tokens_per_pass > 3.5
        assert drafter.counts.cycles == statistics.passes
        assert drafter.counts.string_free == (strategy is PassThrough)
    assert statistics.proposed_by.keys() == {"context"}
