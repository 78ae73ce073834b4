"""Runs of the bundled models: what is recorded."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spectool import ArtifactError
from spectool.artifacts.benchmark import GENERATIONS, PLAIN, Benchmark, Row, write_block
from spectool.artifacts.formats import verify_artifact
from spectool.artifacts.manifest import seal
from spectool.commands.bench import describe_differences
from spectool.measure.bench.running import count_outputs
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_drafter, load_model
from spectool.tests.measure.bench.recorded import TARGET, replayed, run

pytestmark = pytest.mark.system


def test_every_prompt_is_decoded_in_every_configuration(measured: Path) -> None:
    rows = Benchmark(measured).generations.to_pylist()
    configurations = {(PLAIN, 0), *((name, k) for name in ("dictionary", "draft") for k in (2, None))}
    for block in range(3):
        mine = [row for row in rows if row["block"] == block]
        assert [row["order"] for row in mine] == list(range(5))
        assert {(row["drafter"], row["num_draft_tokens"]) for row in mine} == configurations
        assert len({(row["prompt"], row["kind"], row["language"], row["prompt_tokens"]) for row in mine}) == 1
        assert len({tuple(row["output"]) for row in mine}) == 1
    orders = [tuple(row["drafter"] for row in rows if row["block"] == block) for block in range(3)]
    assert len(set(orders)) > 1


def test_cycles_add_up_to_generations(measured: Path) -> None:
    run = Benchmark(measured)
    cycles: dict[Any, list[Row]] = {}
    for cycle in run.cycles.to_pylist():
        cycles.setdefault((cycle["block"], cycle["order"]), []).append(cycle)
    drafted = [row for row in run.generations.to_pylist() if row["drafter"] != PLAIN]
    assert len(cycles) == len(drafted) == 12
    for row in drafted:
        mine = cycles[row["block"], row["order"]]
        assert [cycle["cycle"] for cycle in mine] == list(range(row["passes"]))
        for name in ("proposed", "accepted"):
            assert sum(cycle[name] for cycle in mine) == row[name]
        assert sum(cycle["committed"] for cycle in mine) == row["tokens"] == len(row["output"])
        assert [cycle["position"] for cycle in mine] == [
            sum(cycle["committed"] for cycle in mine[:place]) for place in range(len(mine))
        ]
        assert sum(cycle["seconds"] for cycle in mine) <= row["seconds"]
        # Not their sum: the drafter's commit runs beside a pass that began ahead.
        assert max(row["draft_seconds"], row["pass_seconds"]) <= row["seconds"]


def test_plain_decoding_is_timed_from_its_first_pass(work: Path) -> None:
    out = work / "one.bench"
    result = run("bench", work / "experiment.toml", "--tokens", 1, "-o", out)
    assert result.exit_code == 0, result.output
    assert "too short to tell whether drafting pays" in result.stderr and "--ignore-eos" in result.stderr
    seconds: dict[str, list[float]] = {}
    for row in Benchmark(out).generations.to_pylist():
        seconds.setdefault(row["drafter"], []).append(row["seconds"])
    # One pass each: what it costs is the same, within what a busy machine adds.
    assert min(seconds[PLAIN]) > min(seconds["dictionary"]) / 4


def test_outputs_may_go_on_behind_their_end(work: Path) -> None:
    out = work / "on.bench"
    result = run("bench", work / "experiment.toml", "--tokens", 60, "--ignore-eos", "-o", out)
    assert result.exit_code == 0, result.output
    assert {row["tokens"] for row in Benchmark(out).generations.to_pylist()} == {60}
    assert "95% interval" in result.stdout


def test_counts_are_those_of_a_replay(work: Path, measured: Path) -> None:
    drafter = load_drafter(TARGET, dictionary=work / "pl.dict")
    _, tokenizer = load_model(TARGET)
    rows = Benchmark(measured).generations.to_pylist()
    lines = (work / "prompts.txt").read_text(encoding="utf-8").splitlines()
    mine = [row for row in rows if (row["drafter"], row["num_draft_tokens"]) == ("dictionary", 2)]
    assert len(mine) == 3
    for row in mine:
        prompt = tokenizer.encode(lines[int(row["prompt"][-3:]) - 1])
        assert len(prompt) == row["prompt_tokens"]
        assert replayed(drafter, prompt, row["output"]) == (row["passes"], row["accepted"])


def test_the_manifest_tells_machine_and_sizes(measured: Path) -> None:
    manifest = Benchmark(measured).manifest
    statistics = manifest.statistics
    assert statistics["machine"]["cores"] == os.cpu_count()
    weights = {name: (demo_path(name) / "model.safetensors").stat().st_size for name in ("target", "draft")}
    assert statistics["sizes"]["target"] == pytest.approx(weights["target"], rel=0.05)
    assert statistics["draft_sizes"] == {"target": {"draft": pytest.approx(weights["draft"], rel=0.05)}}
    for command in ("inspect", "verify"):
        result = run(command, measured)
        assert result.exit_code == 0, result.output


def test_a_run_whose_cycles_are_not_its_generations_is_refused(work: Path, measured: Path) -> None:
    run_, damaged = Benchmark(measured), work / "damaged"
    damaged.mkdir()
    cycles = run_.cycles.to_pylist()
    write_block(damaged, run_.generations.to_pylist(), cycles[:-1])
    seal(damaged, replace(run_.manifest, files={}))
    last = cycles[-1]
    with pytest.raises(ArtifactError, match=f"block {last['block']}, generation {last['order']}: its cycles have"):
        verify_artifact(damaged)


def test_drawn_outputs_depend_on_the_seed_alone_and_are_not_compared(work: Path) -> None:
    outputs = []
    for name, seed in (("one", 1), ("same", 1), ("two", 2)):
        out = work / f"drawn-{name}.bench"
        result = run(
            "bench", work / "experiment.toml", "--temp", 0.9, "--seed", seed, "--ignore-eos", "-o", out, "--json"
        )
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["different"] is None
        rows = sorted(Benchmark(out).generations.to_pylist(), key=lambda row: (row["block"], row["drafter"]))
        outputs.append([row["output"] for row in rows if row["num_draft_tokens"] is not None])
    assert outputs[0] == outputs[1] != outputs[2]


def test_several_temperatures_are_blocks_of_their_own(work: Path) -> None:
    """Prompts drawn, both ways of verifying, and a draft length for each: what a report by temperature needs."""
    out = work / "temperatures.bench"
    draft = f"model={demo_path('draft')}"
    result = run(
        *("bench", "--model", TARGET, "--drafter", draft, "--drafter", f"{draft},verify=rejection"),
        *("--drafter", f"dict={work / 'pl.dict'},min-prob=0.9", "--prompts", "pl:list", "--sample", 2, "--seed", 5),
        *("--temp", 0, "--temp", 0.8, "--num-draft-tokens", 3, "--tokens", 12, "--ignore-eos", "-o", out, "--json"),
    )
    assert result.exit_code == 0, result.output
    benchmark = Benchmark(out)
    rows = benchmark.generations.to_pylist()
    assert [row["temperature"] for row in rows] == [0.0] * 4 + [0.8] * 4 + [0.0] * 4 + [0.8] * 4
    blocks = {row["block"]: (row["prompt"], row["temperature"]) for row in rows}
    assert len(set(blocks.values())) == len(blocks) == 4
    names = {"draft", "draft rejection", "pl.dict 0.9", PLAIN}
    assert all({row["drafter"] for row in rows if row["block"] == block} == names for block in blocks)
    for row in rows:
        assert row["temperature"] == 0 or row["first_difference"] is None
        greedy = next(r["output"] for r in rows if (r["block"], r["drafter"]) == (row["block"], PLAIN))
        assert row["temperature"] or row["output"] == greedy
    facts = json.loads(result.stdout)
    assert (facts["different"], facts["compared"]) == (0, {"outputs": 6, "tokens": 72})
    assert {(one["drafter"], one["temperature"]) for one in facts["configurations"]} == {
        (name, temperature) for name in names - {PLAIN} for temperature in (0.0, 0.8)
    }
    of = {name: [row for row in rows if row["drafter"] == name and row["temperature"]] for name in names}
    proposed = {name: sum(row["proposed"] for row in mine) for name, mine in of.items()}
    assert proposed["pl.dict 0.9"] < proposed["draft"]
    for command in ("inspect", "verify"):
        result = run(command, out)
        assert result.exit_code == 0, result.output


def test_outputs_that_part_are_counted_with_the_place() -> None:
    rows = [
        {"drafter": PLAIN, "temperature": 0.0, "tokens": 20, "seconds": 1.0},
        {"drafter": "a", "temperature": 0.0, "tokens": 20, "seconds": 1.0},
        {"drafter": "b", "temperature": 0.0, "tokens": 20, "seconds": 1.0, "first_difference": 9, "gap": 0.25},
        {"drafter": "c", "temperature": 0.0, "tokens": 20, "seconds": 1.0, "first_difference": 4, "gap": 0.125},
        {"drafter": "a", "temperature": 0.7, "tokens": 20, "seconds": 1.0},
    ]
    counts = count_outputs(pa.Table.from_pylist(rows, GENERATIONS))
    assert counts["different"] == 2 and counts["compared"] == {"outputs": 3, "tokens": 20 + 10 + 5}
    assert (counts["first_difference"], counts["largest_gap"]) == (4, 0.25)
    assert describe_differences(counts) == (
        "2 of 3 outputs, one in 18 tokens, the first after 4; the two best logits there are 0.25 apart at most"
    )
    drawn = count_outputs(pa.Table.from_pylist(rows[-1:], GENERATIONS))
    assert drawn["different"] is None
