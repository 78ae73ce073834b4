"""What a run says: whether drafting pays, how sure that is, and whether the texts are the same."""

from collections import Counter
from dataclasses import replace
from math import exp
from statistics import geometric_mean
from typing import Any

import numpy as np
import pytest

from spectool.lab.paper_tables.cost_model import CostModel
from spectool.measure.bench.page import command_of, page, summary_table
from spectool.measure.bench.results import PLAIN, Block, DrafterSpec, Result, differences, judged, verdict_of
from spectool.measure.degenerate import ECHOES, LOOPS
from spectool.measure.intervals import FEWEST, LEAST

from .runs import QWEN, Truth, block, drawn_blocks, generation, run_of


def result(speedups: list[float]) -> Result:
    pairs = [(generation("history", 2, 1 / speedup), generation(PLAIN, 0, 1.0)) for speedup in speedups]
    return Result("history", 2, pairs)


SLOWER, UNSURE, FASTER = (result([exp(mean + 0.1 * (place % 5 - 2)) for place in range(12)]) for mean in (-0.3, 0, 0.3))


@pytest.mark.parametrize(
    ("results", "pays"),
    [
        ([FASTER], True),
        ([SLOWER, FASTER, UNSURE], True),
        ([UNSURE], None),
        ([SLOWER, UNSURE], None),
        ([SLOWER], False),
        ([SLOWER] * 9, False),
    ],
)
def test_drafting_pays_if_the_fastest_is_faster_and_not_if_all_are_slower(results: list[Result], pays: bool) -> None:
    assert judged(results)[0] is pays


def test_that_all_are_slower_needs_no_allowance_for_choice_and_that_one_is_faster_does() -> None:
    few = result([0.5, 0.6, 0.7, 0.8, 0.9, 0.95])  # at a higher level, six values have no interval
    pays, _, allowing = judged([few] * 9)
    assert allowing.low is None and pays is False
    lucky = result([1 / one for one in few.speedups])
    assert lucky.speedup.low is not None and lucky.speedup.low > 1 and judged([lucky])[0]
    assert judged([lucky] * 9)[0] is None


@pytest.mark.parametrize(
    ("agreement", "cost", "pays"), [(0.8, CostModel(0.02, 0.01), True), (0.2, CostModel(0.2, 0.1), False)]
)
def test_verdicts_of_runs_whose_truth_is_known(agreement: float, cost: CostModel, pays: bool) -> None:
    run = run_of(drawn_blocks([Truth("qwen", agreement, cost)], ["pl"], prompts=12))
    verdict = verdict_of(run)
    assert verdict.pays is pays and verdict.fastest
    alone, allowing = verdict.fastest.speedup, judged(verdict.results)[2]
    assert allowing.low < alone.low < alone.high < allowing.high
    written = page(run)
    assert (command_of(run, verdict.fastest) in written) is pays
    assert ("decode plainly, with --num-draft-tokens 0" in written) is not pays


def test_intervals_of_runs_hold_their_truth() -> None:
    held, runs = 0, 24
    truth = Truth("qwen", 0.6, CostModel(0.071, 0.05))
    for seed in range(runs):
        one = verdict_of(run_of(drawn_blocks([truth], ["pl"], ["list"], prompts=12, seed=seed, noise=0.05))).fastest
        cost = truth.cost.cost(one.num_draft_tokens or 0)
        expected = geometric_mean([drafted.tokens / drafted.passes / cost for drafted, _ in one.pairs])
        held += one.speedup.low <= expected <= one.speedup.high
    print(f"seeds 0 to {runs - 1}; speed-up held:", held)
    assert held >= 20


@pytest.mark.parametrize("configurations", [1, 4])
def test_equal_speeds_get_each_wrong_verdict_in_one_run_of_forty_at_most(configurations: int) -> None:
    runs, prompts, seed = 600, 12, 5
    print("seed", seed)
    rng = np.random.default_rng(seed)
    said = Counter[bool | None]()
    for _ in range(runs):
        plain = [generation(PLAIN, 0, second, LEAST) for second in np.exp(rng.normal(0, 0.2, prompts)).tolist()]
        times = np.exp(rng.normal(0, 0.2, (configurations, prompts))).tolist()
        drafted = [[generation("history", 2, second, LEAST) for second in each] for each in times]
        pairs = [list(zip(each, plain, strict=True)) for each in drafted]
        said[judged([Result("history", 2, each) for each in pairs])[0]] += 1
    print(said)
    most = 0.025 + 3.5 * (0.025 * 0.975 / runs) ** 0.5
    assert 0 < said[True] / runs < most and said[False] / runs < most
    assert said[False] > 0 or configurations > 1, "all of several have to be slower"


def test_figures_are_those_of_the_blocks() -> None:
    blocks = drawn_blocks([QWEN], ["pl"])
    verdict = verdict_of(run_of(blocks))
    _, four = verdict.results
    ran = [(each.by_configuration["qwen", 4], each.plain) for each in blocks]
    ratios = [plain.seconds / plain.tokens / (one.seconds / one.tokens) for one, plain in ran]
    assert four.speedup.value == pytest.approx(geometric_mean(ratios)) and four.speedup.n == 16
    found = four.figures()
    assert found["acceptance"] == sum(sum(one.accepted) for one, _ in ran) / sum(sum(one.proposed) for one, _ in ran)
    assert found["tokens_per_pass"] == pytest.approx(16 * 64 / sum(len(one.proposed) for one, _ in ran))
    row = summary_table(verdict).splitlines()[3].split()
    assert row[:4] == ["qwen", "4", "16", f"{four.speedup.value:.3g}"] and f"{found['acceptance']:.3g}" in row


def test_speed_is_by_token() -> None:
    # Drawn outputs may differ in length: twice the tokens in the same time are twice as fast.
    pairs = [
        (generation("qwen", 2, 1.0, 20), generation(PLAIN, 0, 1.0, 10)),
    ]
    assert Result("qwen", 2, pairs).speedups == [2.0]


def test_a_difference_in_speed_is_chance_where_nothing_was_drafted() -> None:
    none: dict[str, Any] = {"proposed": (0,) * 64, "accepted": (0,) * 64}
    idle = [(generation(PLAIN, 0, 1.2), generation("qwen", 4, 1.0, **none)) for _ in range(12)]
    verdict = verdict_of(run_of([block(f"p{number}", pair) for number, pair in enumerate(idle)]))
    assert verdict.pays is False and "nothing was drafted" in verdict.sentence
    both = [[*pair, generation("history", 4, 1.1)] for pair in idle]
    verdict = verdict_of(run_of([block(f"p{number}", ran) for number, ran in enumerate(both)]))
    assert verdict.fastest is not None and verdict.fastest.drafter == "history", "qwen drafted nothing"


def test_prompts_with_a_short_output_are_left_out() -> None:
    ran = [generation(PLAIN, 0, 1.0), generation("qwen", 2, 1.0)]
    short = [generation(PLAIN, 0, 1.0, LEAST - 1), generation("qwen", 2, 1.0, LEAST - 1)]
    run = run_of([block("a", ran), block("b", short)])
    assert verdict_of(run).results[0].speedup.n == 1
    run = run_of([block("b", short)])
    verdict = verdict_of(run)
    assert verdict.results == []
    assert "too short to tell" in verdict.sentence
    assert "too short to tell" in page(run)


@pytest.mark.parametrize(("prompts", "told"), [(FEWEST, True), (FEWEST - 1, False)])
def test_a_run_with_too_few_prompts_shows_no_speed_up(prompts: int, told: bool) -> None:
    run = run_of(drawn_blocks(sources=["pl"], kinds=["list"], prompts=prompts))
    verdict = verdict_of(run)
    assert all((row.split()[3] == "—") is not told for row in summary_table(verdict).splitlines()[2:])
    assert ("too short to tell" in verdict.sentence) is not told
    assert all(one.figures()["speedup"] > 0 for one in verdict.results), "programs get it"


def test_outputs_that_part_are_counted_with_the_place() -> None:
    parting = {place: (*range(place), 99, *range(place + 1, 20)) for place in (9, 4)}
    ran = [
        generation(PLAIN, 0, 1.0, 20),
        generation("a", 2, 1.0, 20),
        generation("b", 2, 1.0, 20, output=parting[9], gap=0.25),
        generation("c", 2, 1.0, 20, output=parting[4], gap=0.125),
    ]
    run = run_of([block("one", ran)])
    found = differences(run)
    assert (found["different"], found["outputs"], found["tokens"]) == (2, 3, 20 + 10 + 5)
    assert (found["first_difference"], found["largest_gap"]) == (4, 0.25)
    assert "2 of 3 outputs (35 tokens)" in page(run) and "first after 4 tokens" in page(run) and "0.25" in page(run)
    drawn = run_of([block("one", [replace(each, gap=None) for each in ran], temperature=0.7)])
    assert differences(drawn)["outputs"] == 0 and "not compared" in page(drawn)


def test_the_command_is_that_of_the_fastest() -> None:
    spec = DrafterSpec(("--dict", "a b.dict", "--draft-model", "D", "--no-history"), {})
    run = run_of(drawn_blocks([QWEN], ["pl"], temperatures=(0.7,)), drafters={"qwen": spec})
    assert command_of(run, verdict_of(run).results[0]) == (
        "spectool generate --model models/large --dict 'a b.dict' --draft-model D --no-history --num-draft-tokens 2 "
        "--temp 0.7"
    )


def faulty(number: int, fault: str | None, speedup: float) -> Block:
    """A block in which drafting is that much faster, and whose texts may loop or echo."""
    plain = generation(PLAIN, 0, 1.0 + number % 3 / 100, fault=fault)
    return block(f"p{number}", [plain, generation("history", None, plain.seconds / speedup, fault=fault)])


def test_text_that_loops_or_echoes_has_no_part_in_the_verdict() -> None:
    # Found from outside: 7 of 8 outputs looped or echoed, and "drafting pays … 1.91 times" was the verdict.
    real = [faulty(number, None, 0.8) for number in range(7)]
    loops = [faulty(number, LOOPS, 3.0) for number in range(7, 11)]
    run = run_of([*real, *loops, faulty(11, ECHOES, 3.0)])
    verdict = verdict_of(run)
    assert verdict.pays is False and verdict.fastest
    assert verdict.results[0].speedup.value == pytest.approx(0.8) and verdict.results[0].speedup.n == 7
    assert "Of 12 outputs, 4 loop and 1 echoes its prompt" in verdict.sentence and verdict.sentence in page(run)
    assert len(summary_table(verdict).splitlines()) == 3


def test_a_model_that_writes_mostly_such_text_is_named_as_unfit() -> None:
    blocks = [faulty(number, LOOPS if number < 7 else None, 2.0) for number in range(13)]
    verdict = verdict_of(run_of(blocks))
    assert verdict.fastest is None and verdict.pays is None and "unfit for measuring" in verdict.sentence
    assert "rafting pays" not in page(run_of(blocks)).replace("does drafting pay", "")
    verdict = verdict_of(run_of(blocks[1:]))
    assert verdict.pays is True, "of 12 outputs, 6 loop"


def test_one_output_that_loops_takes_its_block_out() -> None:
    ran = [generation(PLAIN, 0, 1.0), generation("history", 2, 0.1, fault=LOOPS)]
    verdict = verdict_of(run_of([block("drawn", ran, temperature=0.7)]))
    assert verdict.results == [] and "1 loops" in verdict.sentence
