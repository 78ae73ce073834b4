"""Runs of the bundled models: what is recorded."""

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

from spectool.measure.bench.run_file import PAGE, PLAIN, read_run
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_drafter, load_model
from spectool.tests.measure.bench.recorded import TARGET, options, replayed
from spectool.tests.running import error_of, run

pytestmark = pytest.mark.system


def test_every_prompt_is_decoded_in_every_configuration(measured: Path) -> None:
    found = read_run(measured)
    assert len(found.blocks) == 3
    for block in found.blocks:
        ran = [(one.drafter, one.num_draft_tokens) for one in block.generations]
        assert sorted(map(str, ran)) == sorted(map(str, found.header.options.configurations)) and len(ran) == 5
        assert len({one.output for one in block.generations}) == 1
    assert len({tuple(one.drafter for one in block.generations) for block in found.blocks}) > 1


def test_cycles_add_up_to_generations(measured: Path) -> None:
    for block in read_run(measured).blocks:
        for one in block.generations:
            if one.drafter == PLAIN:
                assert not one.proposed and one.draft_seconds == one.draft_prompt_seconds == 0
            else:
                assert sum(one.accepted) + one.passes == one.tokens
                assert one.draft_seconds <= one.decoding_seconds


def test_outputs_may_go_on_behind_their_end(work: Path) -> None:
    out = work / "on.bench"
    done = run(*options(work, out, "--ignore-eos", "--tokens", 60))
    assert done.exit_code == 0, done.output
    assert {one.tokens for block in read_run(out).blocks for one in block.generations} == {60}
    assert "95% interval" in done.stdout and "95% interval" in (out / PAGE).read_text(encoding="utf-8")


def test_counts_are_those_of_a_replay(work: Path, measured: Path) -> None:
    drafter = load_drafter(TARGET, dictionary=work / "pl.dict")
    assert drafter is not None
    _, tokenizer = load_model(TARGET)
    lines = (work / "prompts.txt").read_text(encoding="utf-8").splitlines()
    for block in read_run(measured).blocks:
        one = block.by_configuration()["dictionary", 2]
        prompt = tokenizer.encode(lines[int(block.prompt[-3:]) - 1])
        assert len(prompt) == block.prompt_tokens
        assert replayed(drafter, prompt, list(one.output)) == (one.passes, sum(one.accepted))


def test_the_header_tells_machine_and_sizes(measured: Path) -> None:
    header = read_run(measured).header
    assert header.machine["cores"] == os.cpu_count()
    weights = {str(demo_path(name)): demo_path(name) / "model.safetensors" for name in ("target", "draft")}
    sizes = {name: pytest.approx(file.stat().st_size, rel=0.05) for name, file in weights.items()}
    assert header.weight_bytes == sizes
    for command in ("inspect", "verify"):
        assert f"Its page is {measured / PAGE}" in run(command, measured).stderr
    assert error_of(run("inspect", measured)).startswith(f"Error: {measured}: is a run of `spectool bench`")


def test_drawn_outputs_depend_on_the_seed_alone_and_are_not_compared(work: Path) -> None:
    outputs = defaultdict(list)
    for name, seed in (("one", 1), ("same", 1), ("two", 2)):
        out = work / f"drawn-{name}.bench"
        done = run(*options(work, out, "--temp", 0.9, "--seed", seed, "--ignore-eos", "--count", 1), "--json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["different"] is None
        for block in read_run(out).blocks:
            fixed = {(one.drafter, k): one.output for (_, k), one in block.by_configuration().items() if k is not None}
            outputs[name].append(fixed)
    assert outputs["one"] == outputs["same"] != outputs["two"]
