"""``spectool predict`` with a draft model, and what its passes are taken to cost."""

from collections import Counter
from pathlib import Path

import pytest

from spectool import SpectoolError
from spectool.measure.chips import chip_of, cost_range, known, pass_seconds, published
from spectool.runtime.demo_models import demo_path
from spectool.tests.measure.predict.predicting import TARGET, error_of, figures, run
from spectool.tests.running import run as run_command

DRAFT = demo_path("draft")


def test_passes_that_others_have_timed_lie_in_the_range() -> None:
    chips: Counter[str] = Counter()
    for each in known()["passes"]:
        seconds = pass_seconds(each["chip"], 1e9 * each["gigabytes"])
        assert min(seconds) <= each["milliseconds"] / 1e3 <= max(seconds), each
        chips[each["chip"]] += 1
    assert sum(chips.values()) >= 8 and len(chips) >= 5


def test_every_chip_of_the_table_of_curves_has_a_bandwidth() -> None:
    for chip in {chip for row in published() for chip in row.chips if chip_of(chip)}:
        low, high = cost_range(chip, 0.22e9, 6.2e9)
        assert 0.02 < low.token < high.token < 0.5, chip
        larger = cost_range(chip, 0.54e9, 6.2e9)
        assert larger[0].token > low.token and larger[1].token > high.token
    with pytest.raises(SpectoolError, match="M99 is not in the table"):
        pass_seconds("M99", 1e9)


def test_a_draft_model_on_a_chip(replaying: list[object]) -> None:
    asked = ["--draft-model", DRAFT, "--on", "M4 Pro", "--bits", 8, "--max-tokens", 60]
    facts = figures(*replaying, *asked, "--size", "8")
    assert list(facts["by_drafter"]) == ["look-ups", "draft model", "both together"]
    assert facts["by_drafter"]["both together"] == f"{facts['low']:.2f} to {facts['high']:.2f}"
    assert "draft model" in facts["summary"] and facts["tokens"] == 60
    (cost,) = facts["cost_of_a_draft_token"].values()
    assert cost.endswith("plain passes") and 0 < float(cost.split()[0]) < float(cost.split()[2])
    alone = figures(*replaying, "--no-history", *asked, "--size", "8")
    assert f"{alone['low']:.2f} to {alone['high']:.2f}" == facts["by_drafter"]["draft model"]
    assert list(alone["accepted_by_source"]) == ["model"]
    assert "give it with --size" in error_of(run(*replaying, "--draft-model", DRAFT, "--on", "M3 Max"))


@pytest.mark.nightly
def test_a_draft_model_here(replaying: list[object], cache: Path) -> None:
    here = [*replaying, "--here", "--draft-model", DRAFT, "--max-tokens", 40]
    assert "--model M" in run("--here").stderr
    assert f"doctor --model {TARGET}" in error_of(run(*here))
    assert run_command("doctor", "--model", TARGET, "--seconds", 1).exit_code == 0
    assert f"--draft-model {DRAFT}" in error_of(run(*here))
    assert run_command("doctor", "--model", TARGET, "--draft-model", DRAFT, "--seconds", 1).exit_code == 0
    facts = figures(*here)
    assert len(facts["by_measurement"]) == 1 and facts["low"] <= facts["high"]


def test_without_a_number_of_tokens_it_takes_a_few(replaying: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spectool.commands.predict_steps._ASKED", 30)
    asked = ["--draft-model", DRAFT, "--on", "M4 Pro", "--bits", 8, "--size", 8]
    assert figures("--tokenizer", TARGET, "--corpus", "sample:pl", *asked)["tokens"] == 30


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--no-history"], "without --dict FILE"),
        (["--draft-model", DRAFT], "add --here, or --on CHIP"),
        (["--size", 8], "add --on CHIP"),
        (["--alignment", "pair.align"], "--draft-model D"),
    ],
)
def test_options_that_need_others(options: list[object], says: str, replaying: list[object]) -> None:
    refused = run(*replaying, *options)
    assert refused.exit_code == 2 and says in " ".join(refused.stderr.split())
