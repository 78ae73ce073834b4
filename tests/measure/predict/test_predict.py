"""What is predicted of a machine, against a replay that was written apart from it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spectool import SpectoolError
from spectool.corpora import sample_path
from spectool.lab.hindsight import Machine as Simulated
from spectool.lab.hindsight import Saved, play
from spectool.measure.chips import chip_of, published
from spectool.measure.machines import Machine, machines_on
from spectool.measure.predict import Forecast, Text, predict
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Drafter, Proposal
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.policy.curve import PassCurve
from spectool.runtime.policy.pass_costs import PassCosts
from spectool.runtime.policy.policy import Policy
from spectool.tests import running as commands
from spectool.tests.measure.predict.predicting import TARGET, figures, run
from spectool.tests.tiers import nightly
from spectool.tokenization.opening import open_tokenizer

ROWS, LONGEST = published(), 16


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


@pytest.mark.parametrize("row", [*ROWS[::6], *nightly(*ROWS)], ids=lambda row: row.title)
def test_figures_are_those_of_a_replay_on_a_simulated_machine(row: Any, documents: list[list[int]]) -> None:
    points = row.curves[min(row.curves)]
    curve = PassCurve({0: points}, {0: 1.0})
    found = predict([Text((), each) for each in documents], Machine(curve), Pairs(documents))
    saved = [Saved([], each, {"pairs": [guesses(each, at) for at in range(len(each))]}) for each in documents]
    simulated = Simulated(lambda rows: curve.seconds(rows, 0), {})
    seconds = sum(play(saved, ["pairs"], simulated, Policy(PassCurve({0: points}, {0: 1.0}))))
    assert found.high == pytest.approx(sum(map(len, documents)) / seconds)
    assert 0.9 < found.low < found.high and (found.counts.passes < found.counts.tokens or row.curves[64][4] > 3)


def test_a_range_has_what_lies_between(documents: list[list[int]]) -> None:
    drafter, texts = LookupDrafter(history=True), [Text((), each) for each in documents]
    (machine,) = machines_on("Apple M5 Max", 6, "affine").values()
    wide, exact = (predict(texts, each, drafter) for each in (machine, machine._replace(shares=(1.0, 1.0))))
    assert 1.0 < wide.low < exact.high < wide.high
    noisy = predict(texts, machine._replace(noise=0.04), drafter)
    assert (noisy.low * 1.04, noisy.high / 1.04) == pytest.approx((wide.low, wide.high))
    assert wide.counts.tokens == sum(map(len, documents))
    for rows, passes in (((1, 2, 3), wide.counts.passes + 1), ((1,), wide.counts.tokens)):  # after `doctor --exact`
        kept = machine._replace(costs=PassCosts("m", "here", {64: {1: 1.0}}, {64: 1.0}, rows, exact=True))
        assert predict(texts, kept, drafter).counts.passes >= passes


@pytest.mark.parametrize(
    ("low", "high", "plain", "said"),
    [
        (0.97, 1.04, (), "No gain expected: 0.97 to 1.04 times as fast as plain decoding."),
        (
            1.4,
            1.6,
            (11.0,),
            "About 1.5 times as fast: 11 tokens a second would become 16.5. The range is 1.40 to 1.60.",
        ),
    ],
)
def test_what_is_expected_is_a_sentence(low: float, high: float, plain: tuple[float, ...], said: str) -> None:
    assert Forecast(low, high, DraftStatistics()).sentence(*plain) == said


def test_size_and_context_that_were_not_measured_are_named() -> None:
    (machine,) = machines_on("M4 Max", 4, "affine").values()
    assert [note.split(":")[0] for note in machine.not_known(27)] == ["context"]
    assert [note.split(":")[0] for note in machine.not_known(8)] == ["context", "size"]
    assert ["--size" in note for note in machine.not_known(None)] == [False, True]
    (matrix,) = machines_on("M2", 4, "affine").values()
    assert [note.split(":")[0] for note in matrix.not_known(400)] == ["model"]


@pytest.mark.parametrize(
    ("chip", "size", "sizes"),
    [
        ("M3 Ultra", None, [None, 31]),
        ("M3 Ultra", 40, [31]),  # a whole model of about that size says more than a matrix
        ("M3 Ultra", 3, [None]),
        ("M4 Pro", 8, [None, None, 8]),  # that one was measured after 8,000 tokens
        ("M5 Max", 8, [None]),
        ("M4 Max", 1, [27]),  # nothing else was measured
    ],
)
def test_measurements_of_far_other_sizes_are_left_out(chip: str, size: float | None, sizes: list[float | None]) -> None:
    rows = [machine.row for machine in machines_on(chip, 4, "affine", size=size).values()]
    assert [row and row.parameters for row in rows] == sizes


@pytest.mark.parametrize(
    ("chip", "named"),
    [
        ("MacBook Air", "got 'MacBook Air'"),
        ("M5", "4-bit affine, 6-bit affine"),
        ("M9", "generation: none"),
    ],
)
def test_nothing_is_guessed(chip: str, named: str) -> None:
    with pytest.raises(SpectoolError, match=named):
        machines_on(chip, 3, "affine")


def test_the_command_spans_all_measurements_of_a_chip(replaying: list[object]) -> None:
    facts = figures(*replaying, "--on", "MacBook Pro M4 Pro", "--size", "8")
    assert len(facts["by_measurement"]) == 3, "two matrices and a model"
    assert facts["low"] <= facts["high"] and f"{facts['low']:.2f} to " in facts["summary"]


def test_the_command_says_where_a_chip_of_its_own_generation_stands_for_it(replaying: list[object]) -> None:
    printed = run(*replaying, "--on", "M4", "--max-tokens", 300).stdout
    assert "Nobody has published this of M4: it is a range over M4 Pro, M4 Max." in printed.splitlines()[0]
    assert "summary" not in printed and "\nlow" not in printed


@pytest.mark.parametrize("language", ["pl", "uk"])
def test_the_text_is_in_the_language_of_the_dictionarys_pack(tmp_path: Path, language: str) -> None:
    out, text = tmp_path / "words.dict", sample_path(language)
    build_dictionary(small_pack(tmp_path, language, text), out)
    assert figures("--dict", out, "--tokenizer", TARGET, "--max-tokens", 50)["corpus"] == f"sample:{language}"


def test_a_text_is_asked_for_where_none_in_the_language_is_bundled(tmp_path: Path) -> None:
    packs = [small_pack(tmp_path, language, sample_path("uk")) for language in ("crh", "uk")]
    for pack in packs:
        build_dictionary(pack, pack.with_suffix(".dict"))
    for others in ([], ["--dict", packs[1].with_suffix(".dict")]):
        refused = run("--dict", packs[0].with_suffix(".dict"), *others)
        said = " ".join(refused.stderr.split())
        assert refused.exit_code == 2 and said.endswith("Bundled are sample:pl and sample:uk")
        assert "--corpus FILE" in said
    assert "--corpus FILE" in run("--tokenizer", TARGET).stderr


def small_pack(folder: Path, language: str, text: Path) -> Path:
    made = commands.run("pack", text, "--language", language, "-o", folder / f"{language}.pack")
    assert made.exit_code == 0, made.output
    return folder / f"{language}.pack"


def build_dictionary(pack: Path, out: Path) -> None:
    made = commands.run("build-dict", "--tokenizer", TARGET, "--pack", pack, "-o", out)
    assert made.exit_code == 0, made.output


def test_chips_are_found_in_names_of_machines() -> None:
    names = ("M2 Air", "Apple M1 Ultra", "mac mini m4 pro", "H200")
    assert [*map(chip_of, names)] == ["M2", "M1 Ultra", "M4 Pro", ""]
