"""The papers' tables of a run against counting generation by generation and cycle by cycle."""

from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from spectool.artifacts.benchmark import Benchmark, Row
from spectool.lab.paper_tables.command import tables
from spectool.lab.paper_tables.cost_model import agreement, expected_tokens
from spectool.lab.paper_tables.tables import acceptance_by_kind, bucket, draft_length, speed_by_kind
from spectool.lab.paper_tables.trials import TrialFrames, trial_frames
from spectool.measure.intervals import geometric_mean
from spectool.tests.measure.report.runs import rows_of, write_run

Drawn = tuple[list[Row], list[Row]]


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return rows_of(languages=["pl"], prompts=4, lengths=(2, 4))


@pytest.fixture
def frames(drawn: Drawn, tmp_path: Path) -> TrialFrames:
    return trial_frames(Benchmark(write_run(tmp_path / "x.bench", *drawn)))


def labels(generations: list[Row]) -> dict[tuple[int, int], str]:
    return {
        (row["block"], row["order"]): ", ".join(filter(None, (row["drafter"], row["strategy"])))
        + f", k = {row['num_draft_tokens']}"
        for row in generations
    }


def test_acceptance_and_speed_are_those_of_the_run(drawn: Drawn, frames: TrialFrames) -> None:
    generations, _ = drawn
    plain = {row["block"]: row for row in generations if row["drafter"] == "plain"}
    names = labels(generations)
    label = "qwen, byte-aligned, k = 4"
    rows = [row for row in generations if names[row["block"], row["order"]] == label and row["kind"] == "question"]
    alpha = sum(row["accepted"] / row["proposed"] for row in rows) / len(rows)
    ratios = [plain[row["block"]]["seconds"] / 64 / (row["seconds"] / row["tokens"]) for row in rows]
    assert acceptance_by_kind(frames).loc[("target, pl", label), "question"].startswith(f"{100 * alpha:.0f}")
    assert speed_by_kind(frames).loc[("target, pl", label), "question"].startswith(f"{geometric_mean(ratios):.2f}")
    assert set(draft_length(frames)["fastest k"]) <= {"2", "4"}


def test_cycles_give_the_probability_that_they_were_drawn_with(tmp_path: Path) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=40, tokens=200)
    found = trial_frames(Benchmark(write_run(tmp_path / "x.bench", generations, cycles)))
    for label, some in found.trials.groupby("label"):
        seen = found.cycles[found.cycles.label == label]
        assert len(seen) == some.passes.sum() and seen.accepted.sum() == some.accepted.sum()
        probability, measured = agreement(seen), some.tokens.sum() / some.passes.sum()
        assert probability is not None and some.accepted.sum() / some.proposed.sum() < probability
        # Prompts differ, so right guesses come in runs and the expectation is a little high.
        assert -0.06 < measured - (expected_tokens(seen) or 0) < 0.005
    seen = found.cycles[found.cycles.label == "qwen, byte-aligned, k = 2"]
    assert agreement(seen) == pytest.approx(0.7, abs=0.05)


@pytest.mark.parametrize(("first", "second"), [(0.5, 0.7), (0.7, 0.5), (0.6, 0.6)])
def test_what_lies_above_the_geometric_expectation(first: float, second: float) -> None:
    # Of two draft tokens the second is accepted more or less often than the first.
    both, one = round(1000 * first * second), round(1000 * first * (1 - second))
    cycles = pd.DataFrame({"proposed": 2, "accepted": [2] * both + [1] * one + [0] * (1000 - both - one)})
    measured, expected = 1 + first + first * second, expected_tokens(cycles)
    assert expected == pytest.approx(measured) if first == second else (measured > (expected or 0)) == (first > second)


def test_buckets_are_the_papers() -> None:
    alphas = pd.Series([0, 29, 30, 39, 40, 55, 60, 69, 70, 100, None]) / 100
    assert bucket(alphas).cat.codes.tolist() == [0, 0, 1, 1, 2, 3, 4, 4, 5, 5, -1]


@pytest.mark.parametrize("temperatures", [1, 2])
def test_the_command_prints_every_table(drawn: Drawn, tmp_path: Path, temperatures: int) -> None:
    generations, cycles = list(drawn[0]), list(drawn[1])
    for number in range(1, temperatures):
        generations += [{**row, "block": row["block"] + 1000, "temperature": 0.7 * number} for row in drawn[0]]
        cycles += [{**row, "block": row["block"] + 1000} for row in drawn[1]]
    run = write_run(tmp_path / "x.bench", generations, cycles)
    done = CliRunner().invoke(tables, [str(run)])
    assert done.exit_code == 0, done.output
    for name in ("fastest k", "exact", "geometric", "70% and more"):
        assert name in done.output
