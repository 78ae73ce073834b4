"""From rows to trials: pairing inside blocks, repetitions together, what is left out."""

from pathlib import Path

import pandas as pd
import pytest

from spectool import ArtifactError
from spectool.artifacts.benchmark import Benchmark, Row
from spectool.measure.report.tables import agreement, bucket, expected_tokens
from spectool.measure.report.trials import (
    Trials,
    by_model,
    by_scope,
    pooled_acceptance,
    pooled_tokens_per_pass,
    read_trials,
)
from spectool.tests.measure.report.runs import rows_of, write_run

QWEN = "qwen, anchored, k = 2"


def row(block: int, drafter: str, seconds: float, **columns: object) -> Row:
    configuration = {"drafter": drafter, "strategy": None, "num_draft_tokens": 0}
    if drafter == "qwen":
        configuration |= {"strategy": "anchored", "num_draft_tokens": 2}
    names = {"block": block, "order": int(drafter != "plain"), "language": "pl", "kind": "list", "prompt": "p"}
    counts = {"tokens": 10, "passes": 5, "proposed": 10, "accepted": 5, "peak_memory": 1, "repetition": block}
    times = {
        "seconds": seconds,
        "draft_seconds": 0.1,
        "pass_seconds": 0.2,
        "prompt_seconds": 0.0,
        "draft_prompt_seconds": 0.0,
    }
    return {"model": "target", "output": [1], **configuration, **names, **counts, **times, **columns}


def trials_of(path: Path, generations: list[Row], cycles: list[Row] | None = None) -> Trials:
    return read_trials(Benchmark(write_run(path / "x.bench", generations, cycles or [])))


def test_speed_ups_are_taken_inside_a_block(tmp_path: Path) -> None:
    # The second time the machine was four times as slow, in both configurations.
    rows = [row(0, "plain", 2.0), row(0, "qwen", 1.0), row(1, "plain", 8.0), row(1, "qwen", 4.0, gap=0.5)]
    rows[3]["first_difference"] = 3
    found = trials_of(tmp_path, rows)
    (trial,), (plain,) = found.drafted.itertuples(), found.plain.itertuples()
    assert (trial.label, trial.speedup, plain.speedup) == (QWEN, pytest.approx(2.0), 1.0)
    assert (trial.repetitions, trial.tokens, trial.seconds, trial.rate) == (2, 20, 5.0, 4.0)
    assert trial.plain_rate == pytest.approx(20 / (2 + 8))
    assert (trial.acceptance, trial.tokens / trial.passes) == (0.5, 2.0) and trial.joules != trial.joules


def test_speed_is_by_token(tmp_path: Path) -> None:
    # Sampled outputs may differ in length: twice the tokens in the same time are twice as fast.
    (trial,) = trials_of(tmp_path, [row(0, "plain", 1.0), row(0, "qwen", 1.0, tokens=20)]).drafted.itertuples()
    assert trial.speedup == 2.0


def test_short_outputs_are_left_out_in_every_way(tmp_path: Path) -> None:
    rows = [row(block, drafter, 1.0, prompt=f"p{block}") for block in (0, 1) for drafter in ("plain", "qwen")]
    rows[2]["tokens"] = 3
    found = trials_of(tmp_path, rows)
    assert [*found.plain.prompt, *found.drafted.prompt] == ["p0", "p0"] and set(found.cycles.block) <= {0}
    assert found.left_out == 1


def test_repetitions_are_counted_by_their_numbers(tmp_path: Path) -> None:
    rows = [row(block, drafter, 1.0, repetition=block // 2) for block in range(4) for drafter in ("plain", "qwen")]
    (trial,) = trials_of(tmp_path, rows).drafted.itertuples()
    assert (trial.outputs, trial.repetitions) == (4, 2)


def test_plain_decoding_beside_is_of_the_same_prompts_and_target(tmp_path: Path) -> None:
    labels = [{"prompt": "p"}, {"prompt": "q"}, {"prompt": "p", "language": "uk"}, {"prompt": "p", "model": "large"}]
    rows = [row(block, name, 1.0, **of) for block, of in enumerate(labels) for name in ("plain", "qwen")]
    found = trials_of(tmp_path, rows)
    names = ["model", "temperature", "language", "kind", "prompt"]
    for number in range(len(found.drafted)):
        trial = found.drafted.iloc[[number]]
        plain = found.plain_beside(trial)
        assert plain[names].to_numpy().tolist() == trial[names].to_numpy().tolist()


@pytest.mark.parametrize("rows", [[row(0, "plain", 1.0)], [row(0, "qwen", 1.0)], []])
def test_nothing_to_compare_is_an_error(tmp_path: Path, rows: list[Row]) -> None:
    with pytest.raises(ArtifactError, match=r"x\.bench: \d generations, none drafted beside plain .* spectool bench"):
        trials_of(tmp_path, rows)


def test_order_is_the_experiments(tmp_path: Path) -> None:
    generations, cycles = rows_of(prompts=2)
    generations.reverse()
    found = trials_of(tmp_path, generations, cycles)
    assert list(found.drafted.label.unique()) == [
        *("qwen, naive, k = 2", "qwen, naive, k = 4", "qwen, anchored, k = 2", "qwen, anchored, k = 4"),
        *("history, k = 2", "history, k = 4"),
    ]
    assert list(by_scope(found.drafted, len)) == [" Here: language uk.", " Here: language pl."]
    assert list(by_model(found.drafted, len)) == [""]


def test_temperatures_are_configurations_of_their_own(tmp_path: Path) -> None:
    rows = [
        row(block, drafter, 1.0 + block, temperature=0.7 * block) for block in (0, 1) for drafter in ("plain", "qwen")
    ]
    found = trials_of(tmp_path, rows)
    assert list(found.drafted.label) == [f"qwen, anchored, temperature {t}, k = 2" for t in ("0", "0.7")]
    for number in range(2):
        assert found.plain_beside(found.drafted.iloc[[number]]).seconds.tolist() == [1.0 + number]


def test_cycles_give_the_probability_that_they_were_drawn_with(tmp_path: Path) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=40, tokens=200)
    found = trials_of(tmp_path, generations, cycles)
    for label, some in found.drafted.groupby("label"):
        seen = found.cycles[found.cycles.label == label]
        assert len(seen) == some.passes.sum() and seen.accepted.sum() == some.accepted.sum()
        probability, measured = agreement(seen), pooled_tokens_per_pass(some)
        assert probability is not None
        # Prompts differ, so that right guesses come in runs: the expectation is a little high.
        assert -0.06 < measured - (expected_tokens(seen) or 0) < 0.005
        assert (pooled_acceptance(some) or 0) < probability
    assert agreement(found.cycles[found.cycles.label == QWEN]) == pytest.approx(0.7, abs=0.05)


@pytest.mark.parametrize(("first", "second"), [(0.5, 0.7), (0.7, 0.5), (0.6, 0.6)])
def test_what_lies_above_the_geometric_expectation(first: float, second: float) -> None:
    # Of two draft tokens the second is accepted more or less often than the first.
    accepted = 1000 * (first + first * second)
    both, one = round(1000 * first * second), round(1000 * first * (1 - second))
    drawn = [2] * both + [1] * one + [0] * (1000 - both - one)
    cycles = pd.DataFrame({"proposed": 2, "accepted": drawn})
    measured = 1 + accepted / 1000
    expected = expected_tokens(cycles)
    assert expected == pytest.approx(measured) if first == second else (measured > (expected or 0)) == (first > second)


def test_buckets_are_the_papers() -> None:
    alphas = pd.Series([0, 29, 30, 39, 40, 55, 60, 69, 70, 100, None]) / 100
    assert bucket(alphas).cat.codes.tolist() == [0, 0, 1, 1, 2, 3, 4, 4, 5, 5, -1]
