"""What the report decides: whether drafting pays, how sure that is, and how many prompts would say more."""

import re
from math import exp
from pathlib import Path

import pytest

from spectool.artifacts.benchmark import Benchmark
from spectool.commands.bench import figures_table
from spectool.measure.bench.totals import totals, totals_table
from spectool.measure.intervals import Estimate, geometric_mean
from spectool.measure.report.costs import fit_cost, fixed_lengths
from spectool.measure.report.summary import Verdict, main_figures, verdicts
from spectool.measure.report.trials import read_trials
from spectool.measure.sample_size import FEWEST, LEAST
from spectool.runtime.draft_length.cost_model import CostModel
from spectool.tests.measure.report.pages import call, page_of
from spectool.tests.measure.report.runs import Truth, rows_of, write_run


def test_that_all_are_slower_needs_no_allowance_for_choice() -> None:
    wide = Estimate(0.7, 0.3, 1.1, 5)
    slower = Estimate(0.7, 0.5, 0.9, 5)
    verdict = Verdict("target", "history, k = 2", None, slower, wide, [slower] * 9)
    assert verdict.pays is False
    assert verdict._replace(every=[*verdict.every, wide]).pays is None


@pytest.mark.parametrize(
    ("agreement", "cost", "pays"),
    [(0.8, CostModel(0.02, 0.01), True), (0.2, CostModel(0.2, 0.1), False)],
)
def test_verdicts(tmp_path: Path, agreement: float, cost: CostModel, pays: bool) -> None:
    generations, cycles = rows_of([Truth("qwen", "anchored", agreement, cost)], ["pl"], prompts=12)
    trials = read_trials(Benchmark(write_run(tmp_path / "x.bench", generations, cycles)))
    (verdict,) = verdicts(trials)
    assert verdict.sentence.startswith("target: drafting ")
    assert verdict.pays is pays and len(verdict.every) == 2
    assert verdict.allowing.low < verdict.speedup.low < verdict.speedup.high < verdict.allowing.high
    step = next(text for text in page_of(tmp_path / "x.bench")["The answer"].text if "What to do next" in text)
    used = re.search(r'spectool generate --model nowhere --no-history --num-draft-tokens [24] --prompt "…"', step)
    assert (used is not None) is pays and ("decode plainly here, with --num-draft-tokens 0" in step) is not pays


def test_how_many_prompts_would_tell() -> None:
    found = Estimate(exp(0.1), exp(-0.1), exp(0.3), 10)
    verdict = Verdict("target", "history, k = 2", None, found, found, [found])
    assert verdict.pays is None and verdict.prompts_to_tell == pytest.approx(
        40, abs=1
    )  # a quarter of the variance, half the interval
    assert verdict._replace(allowing=Estimate(1.01, 0.8, 1.22, 10)).prompts_to_tell is None
    assert verdict._replace(allowing=Estimate(1.0, 0.8, 1.2, 10)).prompts_to_tell is None
    assert verdict._replace(allowing=Estimate(3.0, None, None, 2)).prompts_to_tell == 20


def test_few_prompts_have_no_interval(tmp_path: Path) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=2)
    found = page_of(write_run(tmp_path / "x.bench", generations, cycles))
    spelt = [*found["Speed"].tables[0]["all"], *found["Acceptance"].tables[0]["all"]]
    assert spelt and not any("±" in cell for cell in spelt)
    assert "measure about 20 prompts" in " ".join(found["The answer"].text)


def test_one_prompt_gives_no_verdict(tmp_path: Path) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=1)
    told = call(str(write_run(tmp_path / "x.bench", generations, cycles)))
    assert "too short to tell whether drafting pays: it has 1 prompt with" in told and "--count 20" in told
    assert "times as fast" not in told


@pytest.mark.parametrize(
    ("prompts", "tokens", "told"), [(FEWEST, 64, True), (FEWEST - 1, 64, False), (20, LEAST, True)]
)
def test_a_run_with_too_few_prompts_has_no_speed_up_in_any_table(
    tmp_path: Path, prompts: int, tokens: int, told: bool
) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=prompts, tokens=tokens)
    run = Benchmark(write_run(tmp_path / "x.bench", generations, cycles))
    trials = read_trials(run)
    tables = figures_table(main_figures(trials)), totals_table(run)
    assert [bool(re.search(r" —( |$)", table, re.MULTILINE)) for table in tables] == [not told] * 2
    assert all(each["speedup"] > 0 for each in main_figures(trials)), "programs get it"
    assert all(("too short to tell" in verdict.sentence) is not told for verdict in verdicts(trials))


def test_outputs_too_short_to_time_do_not_count_as_prompts(tmp_path: Path) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=20, tokens=LEAST - 1)
    found = totals(Benchmark(write_run(tmp_path / "x.bench", generations, cycles)))
    assert {each["prompts"] for each in found} == {0}


def test_intervals_of_runs_hold_their_truth(tmp_path: Path) -> None:
    held, runs = [0, 0, 0], 24
    truth = Truth("qwen", "anchored", 0.6, CostModel(0.071, 0.05))
    for seed in range(runs):
        generations, cycles = rows_of([truth], ["pl"], ["list"], prompts=12, seed=seed, noise=0.05)
        trials = read_trials(Benchmark(write_run(tmp_path / f"{seed}.bench", generations, cycles)))
        found = fit_cost(fixed_lengths(trials.drafted))
        assert found is not None
        held[0] += found.r.low <= 0.071 <= found.r.high
        held[1] += found.beta.low <= 0.05 <= found.beta.high
        (verdict,) = verdicts(trials)
        line, some = verdict.speedup, trials.drafted[trials.drafted.label == verdict.label]
        expected = [t.tokens / t.passes / truth.cost.cost(int(t.k)) for t in some.itertuples()]
        held[2] += line.low <= geometric_mean(expected) <= line.high
    print(f"seeds 0 to {runs - 1}; r, beta, speed-up held:", held)
    assert min(held) >= 20
