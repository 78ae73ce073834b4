"""The papers' tables of a run against counting generation by generation and cycle by cycle."""

from pathlib import Path
from statistics import geometric_mean

import pandas as pd
import pytest
from click.testing import CliRunner

from spectool.lab.paper_tables.command import tables
from spectool.lab.paper_tables.cost_model import agreement, expected_tokens
from spectool.lab.paper_tables.reading import read_run
from spectool.lab.paper_tables.tables import acceptance_by_kind, bucket, draft_length, speed_by_kind
from spectool.lab.paper_tables.trials import TrialFrames, trial_frames
from spectool.measure.bench.results import Block
from spectool.tests.measure.bench.runs import drawn_blocks, write_run


@pytest.fixture(scope="module")
def drawn() -> list[Block]:
    return drawn_blocks(sources=["pl"], prompts=4)


@pytest.fixture
def frames(drawn: list[Block], tmp_path: Path) -> TrialFrames:
    return trial_frames(read_run(write_run(tmp_path / "x.bench", drawn)))


def test_acceptance_and_speed_are_those_of_the_run(drawn: list[Block], frames: TrialFrames) -> None:
    ran = [
        (each.by_configuration["qwen", 4], each.by_configuration["plain", 0])
        for each in drawn
        if each.kind == "question"
    ]
    alpha = sum(sum(one.accepted) / sum(one.proposed) for one, _ in ran) / len(ran)
    ratios = [plain.seconds / 64 / (one.seconds / one.tokens) for one, plain in ran]
    label = "qwen, k = 4"
    assert acceptance_by_kind(frames).loc[("pl", label), "question"].startswith(f"{100 * alpha:.0f}")
    assert speed_by_kind(frames).loc[("pl", label), "question"].startswith(f"{geometric_mean(ratios):.2f}")
    assert set(draft_length(frames)["fastest k"]) <= {"2", "4"}


def test_cycles_give_the_probability_that_they_were_drawn_with(tmp_path: Path) -> None:
    blocks = drawn_blocks(sources=["pl"], kinds=["list"], prompts=40, tokens=200)
    found = trial_frames(read_run(write_run(tmp_path / "x.bench", blocks)))
    for label, some in found.trials.groupby("label"):
        seen = found.cycles[found.cycles.label == label]
        assert len(seen) == some.passes.sum() and seen.accepted.sum() == some.accepted.sum()
        probability, measured = agreement(seen), some.tokens.sum() / some.passes.sum()
        assert probability is not None and some.accepted.sum() / some.proposed.sum() < probability
        # Prompts differ, so right guesses come in runs and the expectation is a little high.
        assert -0.06 < measured - (expected_tokens(seen) or 0) < 0.005
    seen = found.cycles[found.cycles.label == "qwen, k = 2"]
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


@pytest.mark.parametrize("temperatures", [(0.0,), (0.0, 0.7)])
def test_the_command_prints_every_table(tmp_path: Path, temperatures: tuple[float, ...]) -> None:
    run = write_run(tmp_path / "x.bench", drawn_blocks(sources=["pl"], prompts=4, temperatures=temperatures))
    done = CliRunner().invoke(tables, [str(run)])
    assert done.exit_code == 0, done.output
    for name in ("fastest k", "exact", "geometric", "70% and more"):
        assert name in done.output
