"""What is predicted of a machine, against a replay that was written apart from it."""

from collections.abc import Sequence
from typing import Any

import pytest

from spectool import SpectoolError
from spectool.corpora import sample_path
from spectool.lab.hindsight import Machine as Simulated
from spectool.lab.hindsight import Saved, play
from spectool.measure.chips import chip_of, published
from spectool.measure.predict import Forecast, Machine, machines_on, predict
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Drafter, Proposal
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.policy.curve import PassCurve
from spectool.runtime.policy.policy import Policy
from spectool.tests.measure.predict.predicting import TARGET, figures
from spectool.tokenization.opening import open_tokenizer

ROWS = published()


LONGEST = 16


@pytest.fixture(scope="module")
def documents() -> list[list[int]]:
    """Text that repeats itself, so that history drafts."""
    lines = sample_path("uk").read_text(encoding="utf-8").splitlines()
    texts = [" ".join(lines[at : at + 2] * 2) for at in (0, 10, 20)]
    return [open_tokenizer(TARGET).encode(text)[:300] for text in texts]


def guesses(document: Sequence[int], at: int) -> Proposal:
    """Tokens that followed the last two before, which says nothing near the end, where drafts would be cut."""
    pair = list(document[at - 2 : at])
    before = [place for place in range(2, at) if list(document[place - 2 : place]) == pair]
    if not before or at > len(document) - LONGEST - 2:
        return Proposal((), "pairs")
    tokens = tuple(document[before[-1] : before[-1] + 8])[: at - before[-1]]
    return Proposal(tokens, "pairs", tuple(0.9**place * 0.9 for place in range(1, len(tokens) + 1)))


class Pairs(Drafter):
    """Proposes `guesses`."""

    name = "pairs"

    def __init__(self, documents: Sequence[Sequence[int]]) -> None:
        self._documents, self._number, self._at = documents, -1, 0

    def start(self, prompt: Sequence[int]) -> None:
        self._number, self._at = self._number + 1, 0

    def propose(self, limit: int) -> Proposal:
        return guesses(self._documents[self._number], self._at).cut(limit)

    def commit(self, tokens: Sequence[int]) -> None:
        self._at += len(tokens)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_figures_are_those_of_a_replay_on_a_simulated_machine(row: Any, documents: list[list[int]]) -> None:
    points = row.curves[min(row.curves)]
    curve = PassCurve({0: points}, {0: 1.0})
    found = predict(documents, Pairs(documents), Machine(curve))
    saved = [Saved([], each, {"pairs": [guesses(each, at) for at in range(len(each))]}) for each in documents]
    simulated = Simulated(lambda rows: curve.seconds(rows, 0), {})
    seconds = sum(play(saved, ["pairs"], simulated, Policy(PassCurve({0: points}, {0: 1.0}))))
    assert found.high == pytest.approx(sum(map(len, documents)) / seconds)
    assert 0.9 < found.low < found.high and (found.counts.passes < found.counts.tokens or row.curves[64][4] > 3)


def test_a_range_has_what_lies_between(documents: list[list[int]]) -> None:
    drafter = LookupDrafter(history=True)
    (machine,) = machines_on("Apple M5 Max", 6, "affine").values()
    wide, exact = (predict(documents, drafter, each) for each in (machine, machine._replace(shares=(1.0, 1.0))))
    assert 1.0 < wide.low < exact.high < wide.high
    noisy = predict(documents, drafter, machine._replace(noise=0.04))
    assert (noisy.low * 1.04, noisy.high / 1.04) == pytest.approx((wide.low, wide.high))
    assert wide.counts.tokens == sum(map(len, documents))


def test_steep_curves_promise_nothing() -> None:
    assert Forecast(0.97, 1.04, DraftStatistics()).in_words.startswith("no gain expected")
    assert not Forecast(1.1, 1.2, DraftStatistics()).in_words.startswith("no gain")


def test_size_and_context_that_were_not_measured_are_named() -> None:
    (machine,) = machines_on("M4 Max", 4, "affine").values()
    assert list(machine.not_known("M4 Max", 27, 8000)) == []
    assert [note.split(":")[0] for note in machine.not_known("M4 Max", 8, 20_000)] == ["context", "size"]
    assert ["--size" in note for note in machine.not_known("M4 Max", None, 0)] == [True]


def test_one_matrix_and_another_chip_of_a_generation_are_named() -> None:
    (machine,) = machines_on("M2 Max", 4, "affine").values()
    assert [note.split(":")[0] for note in machine.not_known("M2 Max", 400, 9000)] == ["chip", "model"]
    assert [note.split(":")[0] for note in machine.not_known("M2", 8, 0)] == ["model"]


@pytest.mark.parametrize(
    ("chip", "experts", "named"),
    [
        ("MacBook Air", False, "MacBook Air"),
        ("M2", True, "of experts cost on M2"),
        ("M9", False, "M3 Max 4-bit"),
    ],
)
def test_nothing_is_guessed(chip: str, experts: bool, named: str) -> None:
    with pytest.raises(SpectoolError, match=named) as refused:
        machines_on(chip, 4, "affine", experts=experts)
    assert not experts or "M4 Max" not in str(refused.value), "which was not measured with experts"


def test_the_command_spans_all_measurements_of_a_chip(replaying: list[object]) -> None:
    facts = figures(*replaying, "--on", "MacBook Pro M4 Pro", "--size", "8")
    assert len(facts["by_measurement"]) == 3, "two matrices and a model"
    assert facts["low"] <= facts["high"] and facts["speed"]
    assert any("8-bit" in note and "--q-bits 8" in note for note in facts["other_forms"])


@pytest.mark.parametrize(
    ("name", "chip"), [("M2 Air", "M2"), ("Apple M1 Ultra", "M1 Ultra"), ("mac mini m4 pro", "M4 Pro"), ("H200", "")]
)
def test_chips_are_found_in_names_of_machines(name: str, chip: str) -> None:
    assert chip_of(name) == chip
