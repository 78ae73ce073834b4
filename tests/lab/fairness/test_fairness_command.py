"""``spectool lab fairness`` from models and text to figures, on the demo models."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from scipy import stats

from spectool.cli import main
from spectool.lab.fairness.formulas import expected_speedup, least_by_divergence
from spectool.lab.fairness.measuring import Measurement
from spectool.lab.resumable import work_path
from spectool.lab.tuning.corrective import unfairness
from spectool.runtime.demo_models import demo_path

TARGET, DRAFT = demo_path("target"), demo_path("draft")
SMALL = ["--rows", "6", "--length", "24"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["lab", "fairness", "--target", str(TARGET), *SMALL, *map(str, arguments)])


def tasks(work: Path) -> list[object]:
    return ["--task", f"pl={work / 'pl.txt'}", "--task", f"uk={work / 'uk.txt'}"]


@pytest.fixture(scope="module")
def measured(work: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One run with a draft of the target's vocabulary, and one of another."""
    out = tmp_path_factory.mktemp("measured") / "out"
    drafts = ["--draft", f"small={DRAFT}", "--draft", f"other={work / 'other'}", "--alignment", work / "other.align"]
    more = ["--gamma", 4, "--cost", 0.1, "--cost", 0.05, "--temp", 0, "--temp", 2]
    result = run(*drafts, *tasks(work), *more, "-o", out, "--json")
    assert result.exit_code == 0, result.output
    return out, json.loads(result.stdout)


def test_figures_agree_with_each_other(measured: tuple[Path, dict[str, Any]]) -> None:
    _, figures = measured
    small, other = figures["drafts"]["small"], figures["drafts"]["other"]
    assert (small["compared"], other["compared"]) == ("one vocabulary", "shared ids")
    assert small["shared_ids"] is None and other["shared_ids"] > 50
    for draft, cost in ((small, 0.1), (other, 0.05)):
        assert draft["cost"] == cost
        by_task = draft["tasks"]
        examples = [example for at in by_task.values() for example in at["examples"]]
        assert draft["spearman"] == pytest.approx(stats.spearmanr(*zip(*examples, strict=True)).statistic)
        assert all(at["by_temperature"].keys() == {"0", "2"} for at in by_task.values())
        assert draft["unfairness"] == pytest.approx(unfairness([at["cross_entropy"] for at in by_task.values()]))
        for at in by_task.values():
            assert at["speedup"] == pytest.approx(expected_speedup(at["acceptance"], 4, cost))
            assert at["acceptance_error"] > 0
            assert at["speedup_by_place"] >= at["speedup"] - 1e-9
            assert abs(at["acceptance"] - (1 - at["draft_misfit"])) <= at["target_misfit"] + 1e-6
            assert all(bound["speedup"] <= at["speedup"] + 1e-6 for bound in at["bounds"].values())
    assert set(other["tasks"]["uk"]["bounds"]) == {"fitness"}, "KL over all ids of the target is infinite"
    at = small["tasks"]["uk"]
    assert at["bounds"]["kl"]["acceptance"] == pytest.approx(least_by_divergence(at["kl"]))
    assert at["share"] == 1 and other["tasks"]["uk"]["share"] < 1
    assert small["tasks"]["uk"]["acceptance"] > other["tasks"]["uk"]["acceptance"], "a draft of random weights"


def figures_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--task", "uk=nowhere.txt"], 1),
        (["--task", "a=sample:uk", "--task", "a=sample:pl"], 2),
        (["--task", "sample:uk", "--cost", "1", "--cost", "2", "--cost", "3"], 2),
        (["--task", "sample:uk", "--draft", "target={work}/other"], 2),
        (["--task", "sample:uk", "--alignment", "{work}/other.align"], 1),
    ],
)
def test_errors_leave_nothing(arguments: list[str], code: int, work: Path, tmp_path: Path) -> None:
    given = [argument.replace("{work}", str(work)) for argument in arguments]
    result = run("--draft", f"draft={DRAFT}", *given, "-o", tmp_path / "out")
    assert result.exit_code == code, result.output
    assert "Error: " in result.output and not (tmp_path / "out").exists()


def test_an_interruption_keeps_finished_tasks_and_the_same_command_goes_on(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, measured = tmp_path / "out", []

    def until_the_second(asked: Measurement, draft: Any, pairing: Any, cost: float, task: str) -> Any:
        measured.append(task)
        if measured == ["pl", "uk"]:
            raise KeyboardInterrupt
        return compared(asked, draft, pairing, cost, task)

    compared = Measurement._compared
    monkeypatch.setattr(Measurement, "_compared", until_the_second)
    result = run("--draft", DRAFT, *tasks(work), "-o", out)
    assert result.exit_code == 130 and "the same command continues from there" in result.output
    assert list(tmp_path.iterdir()) == [work_path(out)]
    other = run("--draft", DRAFT, *tasks(work), "--gamma", 4, "-o", out)
    assert other.exit_code == 1 and "another measurement was begun there: asked.gamma is 5" in other.output
    assert run("--draft", DRAFT, *tasks(work), "-o", out).exit_code == 0
    assert measured == ["pl", "uk", "uk"] and list(tmp_path.iterdir()) == [out]
    monkeypatch.undo()
    assert run("--draft", DRAFT, *tasks(work), "-o", tmp_path / "whole").exit_code == 0
    assert figures_of(out) == figures_of(tmp_path / "whole")
