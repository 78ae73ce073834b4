"""What the report decides: whether drafting pays, how sure that is, and how many prompts would say more."""

import re
from math import exp
from pathlib import Path
from typing import Any, cast

import pytest

from spectool.artifacts.benchmark import Benchmark
from spectool.lab.paper_tables.cost_model import CostModel
from spectool.measure.intervals import FEWEST, LEAST, Estimate, geometric_mean
from spectool.measure.report.run_page import summary_table
from spectool.measure.report.trials import ConfigurationResult, read_trials
from spectool.measure.report.verdicts import RunVerdict, verdicts
from spectool.tests.measure.report.pages import call, page_of
from spectool.tests.measure.report.runs import Truth, rows_of, write_run


def sped_up(speedup: Estimate) -> ConfigurationResult:
    """A configuration with a speed-up, which nobody measured."""
    one = ConfigurationResult("target", 0.0, "history", None, 2, [], 0, [])
    cast(Any, one.__dict__)["speedup"] = speedup
    return one


def test_that_all_are_slower_needs_no_allowance_for_choice() -> None:
    wide = Estimate(0.7, 0.3, 1.1, 5)
    slower = sped_up(Estimate(0.7, 0.5, 0.9, 5))
    verdict = RunVerdict("target", slower, [slower] * 9, wide)
    assert verdict.pays is False
    assert verdict._replace(results=[*verdict.results, sped_up(wide)]).pays is None


@pytest.mark.parametrize(
    ("agreement", "cost", "pays"),
    [(0.8, CostModel(0.02, 0.01), True), (0.2, CostModel(0.2, 0.1), False)],
)
def test_verdicts(tmp_path: Path, agreement: float, cost: CostModel, pays: bool) -> None:
    generations, cycles = rows_of([Truth("qwen", "byte-aligned", agreement, cost)], ["pl"], prompts=12)
    trials = read_trials(Benchmark(write_run(tmp_path / "x.bench", generations, cycles)))
    (verdict,) = verdicts(trials)
    assert verdict.sentence.startswith("target: drafting ")
    assert verdict.pays is pays and len(verdict.results) == 2
    alone = verdict.fastest.speedup
    assert verdict.allowing.low < alone.low < alone.high < verdict.allowing.high
    step = next(text for text in page_of(tmp_path / "x.bench")["The answer"].text if "What to do next" in text)
    used = re.search(
        r'spectool generate --model nowhere --no-history --num-draft-tokens [24] --prompt "…"',
        step,
    )
    assert (used is not None) is pays and ("decode plainly here, with --num-draft-tokens 0" in step) is not pays


def test_how_many_prompts_would_tell() -> None:
    found = Estimate(exp(0.1), exp(-0.1), exp(0.3), 10)
    verdict = RunVerdict("target", sped_up(found), [sped_up(found)], found)
    # A quarter of the variance halves the interval.
    assert verdict.pays is None and verdict.prompts_to_tell == pytest.approx(40, abs=1)
    assert verdict._replace(allowing=Estimate(1.01, 0.8, 1.22, 10)).prompts_to_tell is None
    assert verdict._replace(allowing=Estimate(1.0, 0.8, 1.2, 10)).prompts_to_tell is None
    assert verdict._replace(allowing=Estimate(3.0, None, None, 2)).prompts_to_tell == 20


def test_one_prompt_gives_no_verdict(tmp_path: Path) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=1)
    said = call(str(write_run(tmp_path / "x.bench", generations, cycles)))
    assert "too short to tell whether drafting pays: it has 1 prompt with" in said and "--count 20" in said
    assert "times as fast" not in said


@pytest.mark.parametrize(
    ("prompts", "tokens", "told"), [(FEWEST, 64, True), (FEWEST - 1, 64, False), (20, LEAST, True)]
)
def test_a_run_with_too_few_prompts_shows_no_speed_up(tmp_path: Path, prompts: int, tokens: int, told: bool) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=prompts, tokens=tokens)
    trials = read_trials(Benchmark(write_run(tmp_path / "x.bench", generations, cycles)))
    found = verdicts(trials)
    table = summary_table(found)
    place = list(table.header).index("speed-up")
    assert all((row[place] == "—") is not told for row in table.rows)
    assert all(one.figures()["speedup"] > 0 for one in trials.results), "programs get it"
    assert all(("too short to tell" in verdict.sentence) is not told for verdict in found)


def test_intervals_of_runs_hold_their_truth(tmp_path: Path) -> None:
    held, runs = 0, 24
    truth = Truth("qwen", "byte-aligned", 0.6, CostModel(0.071, 0.05))
    for seed in range(runs):
        generations, cycles = rows_of([truth], ["pl"], ["list"], prompts=12, seed=seed, noise=0.05)
        (verdict,) = verdicts(read_trials(Benchmark(write_run(tmp_path / f"{seed}.bench", generations, cycles))))
        one = verdict.fastest
        cost = truth.cost.cost(one.num_draft_tokens or 0)
        expected = geometric_mean([trial.tokens / trial.passes / cost for trial in one.trials])
        held += one.speedup.low <= expected <= one.speedup.high
    print(f"seeds 0 to {runs - 1}; speed-up held:", held)
    assert held >= 20
