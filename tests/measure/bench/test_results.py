"""What a run says: whether drafting pays, how sure that is, and whether the texts are the same."""

from collections import Counter
from dataclasses import replace
from math import exp
from statistics import geometric_mean
from typing import Any

import numpy as np
import pytest

from spectool.lab.paper_tables.cost_model import CostModel
from spectool.measure.bench.results import (
    PLAIN,
    Block,
    Run,
    command_of,
    differences,
    page,
    summary_table,
    verdict_of,
)
from spectool.measure.intervals import FEWEST, LEAST
from spectool.tests.tiers import nightly

from .runs import QWEN, Truth, block, drawn_blocks, generation, run_of

SLOWER, UNSURE, FASTER = ([exp(mean + 0.1 * (place % 5 - 2)) for place in range(12)] for mean in (-0.3, 0, 0.3))


def run_with(*configurations: list[float]) -> Run:
    """A run in which each configuration is that much faster with each prompt."""
    blocks = [
        [generation(PLAIN, 0, 1.0), *(generation(f"history {n}", 2, 1 / each) for n, each in enumerate(speedups))]
        for speedups in zip(*configurations, strict=True)
    ]
    return run_of([block(f"p{number}", ran) for number, ran in enumerate(blocks)])


@pytest.mark.parametrize(
    ("configurations", "pays"),
    [
        ([FASTER], True),
        ([SLOWER, FASTER, UNSURE], True),
        ([UNSURE], None),
        ([SLOWER, UNSURE], None),
        ([SLOWER], False),
        ([SLOWER] * 9, False),
    ],
)
def test_drafting_pays_if_the_fastest_is_faster_and_not_if_all_are_slower(
    configurations: list[list[float]], pays: bool
) -> None:
    assert verdict_of(run_with(*configurations)).pays is pays


def test_intervals_of_several_configurations_allow_for_the_choice_of_the_fastest() -> None:
    lucky = [1 / one for one in [0.5, 0.6, 0.7, 0.8, 0.9, 0.95]]  # at a higher level, six values have no interval
    alone, several = verdict_of(run_with(lucky)), verdict_of(run_with(*[lucky] * 9))
    assert alone.pays and alone.fastest and alone.fastest.low and alone.fastest.low > 1
    assert several.pays is None and several.fastest and several.fastest.low is None
    assert "too few for an interval" in several.sentence and "the fastest of 9" in several.sentence
    narrow, wide = (verdict_of(run_with(*each)).results[0] for each in ([FASTER], [FASTER, SLOWER]))
    assert wide.low < narrow.low < narrow.speedup == wide.speedup < narrow.high < wide.high


@pytest.mark.parametrize(
    ("agreement", "cost", "pays"), [(0.8, CostModel(0.02, 0.01), True), (0.2, CostModel(0.2, 0.1), False)]
)
def test_verdicts_of_runs_whose_truth_is_known(agreement: float, cost: CostModel, pays: bool) -> None:
    run = run_of(drawn_blocks([Truth("qwen", agreement, cost)], ["pl"], prompts=12))
    verdict = verdict_of(run)
    assert verdict.pays is pays and verdict.fastest
    assert verdict.fastest.low < verdict.fastest.speedup < verdict.fastest.high
    written = page(run)
    assert (command_of(run, verdict.fastest) in written) is pays
    assert ("decode plainly, with --num-draft-tokens 0" in written) is not pays


def test_intervals_of_runs_hold_their_truth() -> None:
    held, runs = 0, 24
    truth = Truth("qwen", 0.6, CostModel(0.071, 0.05))
    for seed in range(runs):
        blocks = drawn_blocks([truth], ["pl"], ["list"], prompts=12, lengths=[2], seed=seed, noise=0.05)
        (one,) = verdict_of(run_of(blocks)).results
        drafted = [each.by_configuration["qwen", 2] for each in blocks]
        expected = geometric_mean([each.tokens / len(each.proposed) / truth.cost.cost(2) for each in drafted])
        held += one.low <= expected <= one.high
    print(f"seeds 0 to {runs - 1}; speed-up held:", held)
    assert held >= 20


@pytest.mark.parametrize("configurations", [1, *nightly(4)])
def test_equal_speeds_get_each_wrong_verdict_in_one_run_of_forty_at_most(configurations: int) -> None:
    runs, prompts, seed = 600, 12, 5
    print("seed", seed)
    rng = np.random.default_rng(seed)
    said = Counter[bool | None]()
    for _ in range(runs):
        plain = np.exp(rng.normal(0, 0.2, prompts))
        times = np.exp(rng.normal(0, 0.2, (configurations, prompts)))
        said[verdict_of(run_with(*(plain / times).tolist())).pays] += 1
    print(said)
    most = 0.025 + 3.5 * (0.025 * 0.975 / runs) ** 0.5
    assert 0 < said[True] / runs < most and said[False] / runs < most
    assert said[False] > 0 or configurations > 1, "all of several have to be slower"


def test_figures_are_those_of_the_blocks() -> None:
    blocks = drawn_blocks([QWEN], ["pl"])
    verdict = verdict_of(run_of(blocks))
    _, four = verdict.results
    ran = [(each.by_configuration["qwen", 4], each.by_configuration[PLAIN, 0]) for each in blocks]
    ratios = [plain.seconds / plain.tokens / (one.seconds / one.tokens) for one, plain in ran]
    assert four.speedup == pytest.approx(geometric_mean(ratios)) and four.prompts == 16
    assert four.acceptance == sum(sum(one.accepted) for one, _ in ran) / sum(sum(one.proposed) for one, _ in ran)
    assert four.tokens_per_pass == pytest.approx(16 * 64 / sum(len(one.proposed) for one, _ in ran))
    row = summary_table(verdict).splitlines()[3].split()
    assert row[:4] == ["qwen", "4", "16", f"{four.speedup:.3g}"] and f"{four.acceptance:.3g}" in row


def test_speed_is_by_token() -> None:
    # Drawn outputs may differ in length: twice the tokens in the same time are twice as fast.
    run = run_of([block("a", [generation("qwen", 2, 1.0, 20), generation(PLAIN, 0, 1.0, 10)])])
    assert verdict_of(run).results[0].speedup == pytest.approx(2.0)


def test_a_difference_in_speed_is_chance_where_nothing_was_drafted() -> None:
    none: dict[str, Any] = {"proposed": (0,) * 64, "accepted": (0,) * 64}
    idle = [(generation(PLAIN, 0, 1.2), generation("qwen", 4, 1.0, **none)) for _ in range(12)]
    verdict = verdict_of(run_of([block(f"p{number}", pair) for number, pair in enumerate(idle)]))
    assert verdict.pays is False and "No guess was worth its cost" in verdict.sentence
    assert "1.2" not in verdict.sentence + summary_table(verdict), "the speed"
    both = [[*pair, generation("history", 4, 1.1)] for pair in idle]
    verdict = verdict_of(run_of([block(f"p{number}", ran) for number, ran in enumerate(both)]))
    assert verdict.fastest is not None and verdict.fastest.drafter == "history", "qwen drafted nothing"


def test_prompts_with_a_short_output_are_left_out() -> None:
    ran = [generation(PLAIN, 0, 1.0), generation("qwen", 2, 1.0)]
    short = [generation(PLAIN, 0, 1.0, LEAST - 1), generation("qwen", 2, 1.0, LEAST - 1)]
    run = run_of([block("a", ran), block("b", short)])
    assert verdict_of(run).results[0].prompts == 1
    run = run_of([block("b", short)])
    verdict = verdict_of(run)
    assert verdict.results == []
    assert "too short to tell" in verdict.sentence
    assert "too short to tell" in page(run)


@pytest.mark.parametrize(("prompts", "told"), [(FEWEST, True), (FEWEST - 1, False)])
def test_a_run_with_too_few_prompts_shows_no_speed_up(prompts: int, told: bool) -> None:
    run = run_of(drawn_blocks([QWEN], sources=["pl"], kinds=["list"], prompts=prompts, lengths=[2]))
    verdict = verdict_of(run)
    assert all((row.split()[3] == "—") is not told for row in summary_table(verdict).splitlines()[2:])
    assert ("too short to tell" in verdict.sentence) is not told
    assert all(one.speedup > 0 for one in verdict.results), "programs get it"


def test_outputs_that_part_are_counted_with_the_largest_gap() -> None:
    parting = {place: (*range(place), 99, *range(place + 1, 20)) for place in (9, 4)}
    ran = [
        generation(PLAIN, 0, 1.0, 20),
        generation("a", 2, 1.0, 20),
        generation("b", 2, 1.0, 20, output=parting[9], gap=0.25),
        generation("c", 2, 1.0, 20, output=parting[4], gap=0.125),
    ]
    run = run_of([block("one", ran)])
    found = differences(run)
    assert found == {"outputs": 3, "different": 2, "largest_gap": 0.25}
    assert "2 of 3 outputs leave plain decoding's" in page(run) and "0.25" in page(run)
    same = page(run_of([block("one", ran[:2])]))
    assert "0 of 1 outputs leave plain decoding's." in same and "logits" not in same
    drawn = run_of([block("one", [replace(each, gap=None) for each in ran], temperature=0.7)])
    assert differences(drawn)["outputs"] == 0 and "not compared" in page(drawn)


LOOP = (1,) * 64


def timed(number: int, speedup: float, loops: bool = False) -> Block:
    """A block in which drafting is that much faster, and whose texts may loop."""
    output = {"output": LOOP} if loops else {}
    plain = generation(PLAIN, 0, 1.0 + number % 3 / 100, **output)
    return block(f"p{number}", [plain, generation("history", None, plain.seconds / speedup, **output)])


def test_text_that_loops_has_no_part_in_the_verdict() -> None:
    # Found from outside: 7 of 8 outputs looped or echoed, and "drafting pays … 1.91 times" was the verdict.
    run = run_of([timed(number, 0.8) if number < 7 else timed(number, 3.0, loops=True) for number in range(12)])
    verdict = verdict_of(run)
    assert verdict.pays is False and verdict.fastest
    assert verdict.results[0].speedup == pytest.approx(0.8) and verdict.results[0].prompts == 7
    assert "5 of 12 prompts led to text that loops" in verdict.sentence and verdict.sentence in page(run)
    assert len(summary_table(verdict).splitlines()) == 3


def test_a_model_that_writes_mostly_such_text_is_named_as_unfit() -> None:
    blocks = [timed(number, 2.0, loops=number < 7) for number in range(13)]
    verdict = verdict_of(run_of(blocks))
    assert verdict.fastest is None and verdict.pays is None and "unfit for measuring" in verdict.sentence
    assert "rafting pays" not in page(run_of(blocks)).replace("does drafting pay", "")
    verdict = verdict_of(run_of(blocks[1:]))
    assert verdict.pays is True, "of 12 outputs, 6 loop"
