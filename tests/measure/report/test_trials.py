"""From rows to trials: pairing inside blocks, repetitions together, what is left out."""

from pathlib import Path

import pytest

from spectool import ArtifactError
from spectool.artifacts.benchmark import Benchmark, Row
from spectool.measure.report.trials import Trials, read_trials
from spectool.tests.measure.report.runs import rows_of, write_run


def row(block: int, drafter: str, seconds: float, **columns: object) -> Row:
    configuration = {"drafter": drafter, "strategy": None, "num_draft_tokens": 0}
    if drafter == "qwen":
        configuration |= {"strategy": "byte-aligned", "num_draft_tokens": 2}
    names = {"block": block, "order": int(drafter != "plain"), "language": "pl", "kind": "list", "prompt": "p"}
    counts = {"tokens": 10, "passes": 5, "proposed": 10, "accepted": 5, "repetition": block}
    times = {"seconds": seconds, "draft_seconds": 0.1, "pass_seconds": 0.2, "draft_prompt_seconds": 0.0}
    return {"model": "target", "output": [1], **configuration, **names, **counts, **times, **columns}


def trials_of(path: Path, generations: list[Row], cycles: list[Row] | None = None) -> Trials:
    return read_trials(Benchmark(write_run(path / "x.bench", generations, cycles or [])))


def test_speed_ups_are_taken_inside_a_block(tmp_path: Path) -> None:
    # The second time the machine was four times as slow, in both configurations.
    rows = [row(0, "plain", 2.0), row(0, "qwen", 1.0), row(1, "plain", 8.0), row(1, "qwen", 4.0, gap=0.5)]
    rows[3]["first_difference"] = 3
    (one,) = trials_of(tmp_path, rows).results
    (trial,) = one.trials
    assert (one.label, trial.speedup) == ("qwen, byte-aligned, k = 2", pytest.approx(2.0))
    assert (one.outputs, trial.tokens, trial.seconds, list(one.gaps)) == (2, 20, 5.0, [0.5])
    assert (trial.plain_tokens, trial.plain_seconds) == (20, 10.0)
    assert (one.acceptance, one.tokens_per_pass) == (0.5, 2.0)
    # A cycle of 0.5 s is half a plain step of 0.5 s a token, with 0.02 s in the drafter and 0.04 s in the pass.
    assert one.cycle == pytest.approx({"drafting": 0.04, "target's pass": 0.08, "rest": 0.88})
    assert one.figures()["different"] == 1


def test_speed_is_by_token(tmp_path: Path) -> None:
    # Sampled outputs may differ in length: twice the tokens in the same time are twice as fast.
    (one,) = trials_of(tmp_path, [row(0, "plain", 1.0), row(0, "qwen", 1.0, tokens=20)]).results
    assert one.speedups == [2.0]


def test_short_outputs_are_left_out_in_every_way(tmp_path: Path) -> None:
    rows = [row(block, drafter, 1.0, prompt=f"p{block}") for block in (0, 1) for drafter in ("plain", "qwen")]
    rows[2]["tokens"] = 3
    found = trials_of(tmp_path, rows)
    assert [trial.prompt for trial in found.results[0].trials] == ["p0"] and found.results[0].outputs == 1
    assert found.left_out == 1


def test_times_are_compared_with_plain_decoding_of_the_same_prompts(tmp_path: Path) -> None:
    labels = [{"prompt": "p"}, {"prompt": "q"}, {"prompt": "p", "language": "uk"}, {"prompt": "p", "model": "large"}]
    rows = [row(block, name, 1.0 + block, **of) for block, of in enumerate(labels) for name in ("plain", "qwen")]
    small, large = trials_of(tmp_path, rows).results
    assert [trial.plain_seconds for trial in small.trials] == [1.0, 2.0, 3.0]
    assert [trial.plain_seconds for trial in large.trials] == [4.0]
    assert [trial.plain_seconds for trial in small.in_language("uk").trials] == [3.0]


@pytest.mark.parametrize("rows", [[row(0, "plain", 1.0)], [row(0, "qwen", 1.0)], []])
def test_nothing_to_compare_is_an_error(tmp_path: Path, rows: list[Row]) -> None:
    with pytest.raises(ArtifactError, match=r"x\.bench: this run is too short to tell .* 0 prompts"):
        trials_of(tmp_path, rows)


def test_order_is_the_experiments(tmp_path: Path) -> None:
    generations, cycles = rows_of(prompts=2)
    run = write_run(tmp_path / "x.bench", generations, cycles)
    generations.reverse()
    found = [trials_of(tmp_path / "y", generations, cycles), read_trials(Benchmark(run))]
    expected = [f"qwen, {strategy}, k = {k}" for strategy in ("naive", "byte-aligned") for k in (2, 4)]
    assert [one.label for one in found[0].results] == [*expected, "history, k = 2", "history, k = 4"]
    assert [one.label for one in found[1].results] == ["history, k = 2", "history, k = 4", *expected]


def test_temperatures_are_configurations_of_their_own(tmp_path: Path) -> None:
    rows = [
        row(block, drafter, 1.0 + block, temperature=0.7 * block) for block in (0, 1) for drafter in ("plain", "qwen")
    ]
    found = trials_of(tmp_path, rows).results
    assert [(one.temperature, one.trials[0].plain_seconds) for one in found] == [(0.0, 1.0), (0.7, 2.0)]
    assert [one.figures()["different"] for one in found] == [0, None]
