"""Runs of the bundled models: what is recorded."""

import json
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from spectool.lab.paper_tables.reading import read_run
from spectool.measure.bench.results import PAGE, PLAIN, RUN_FILE
from spectool.measure.bench.run import Target
from spectool.runtime.loading import load_drafter, load_model
from spectool.tests.measure.bench.recorded import TARGET, options, replayed
from spectool.tests.running import run

pytestmark = pytest.mark.nightly


def test_every_prompt_is_decoded_in_every_configuration(measured: Path) -> None:
    found = read_run(measured)
    assert len(found.blocks) == 3
    for block in found.blocks:
        ran = [(one.drafter, one.num_draft_tokens) for one in block.generations]
        assert sorted(map(str, ran)) == sorted(map(str, found.options.configurations)) and len(ran) == 5
        assert len({one.output for one in block.generations}) == 1
    assert len({tuple(one.drafter for one in block.generations) for block in found.blocks}) > 1


def test_cycles_add_up_to_generations(measured: Path) -> None:
    for block in read_run(measured).blocks:
        for one in block.generations:
            if one.drafter == PLAIN:
                assert not one.proposed and one.draft_seconds == 0
            else:
                assert sum(one.accepted) + len(one.proposed) == one.tokens
                assert one.draft_seconds <= one.seconds


def test_counts_are_those_of_a_replay(work: Path, measured: Path) -> None:
    drafter = load_drafter(TARGET, dictionary=work / "pl.dict")
    assert drafter is not None
    (look_ups,) = drafter.members
    _, tokenizer = load_model(TARGET)
    lines = (work / "prompts.txt").read_text(encoding="utf-8").splitlines()
    for block in read_run(measured).blocks:
        one = block.by_configuration["dictionary", 2]
        prompt = tokenizer.encode(lines[int(block.prompt[-3:]) - 1])
        assert len(prompt) == block.prompt_tokens
        assert replayed(look_ups, prompt, list(one.output)) == (len(one.proposed), sum(one.accepted))


def test_a_folder_that_is_there_is_refused_before_anything_is_read(work: Path, measured: Path) -> None:
    before = (measured / RUN_FILE).read_bytes()
    refused = run(*options(work, measured), "--model", "no/where")
    assert f"{measured}: exists already" in refused.stderr and refused.exit_code == 1
    assert (measured / RUN_FILE).read_bytes() == before


def test_what_was_measured_has_a_page_after_ctrl_c(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure, calls = Target.measure, list[Any]()

    def interrupted(self: Target, *arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 3:  # the first one warms up
            raise KeyboardInterrupt
        return measure(self, *arguments)

    monkeypatch.setattr(Target, "measure", interrupted)
    out = work / "stopped.bench"
    stopped = run(*options(work, out))
    assert stopped.exit_code == 130 and "Interrupted after 1 of 3 prompts" in stopped.stderr
    assert len(read_run(out).blocks) == 1 and "1 from" in (out / PAGE).read_text(encoding="utf-8")
    calls[:] = [()] * 2
    stopped = run(*options(work, work / "nothing.bench"))
    assert stopped.exit_code == 130 and "report.md" not in stopped.stderr
    assert not (work / "nothing.bench").exists()


def test_what_was_measured_has_a_page_after_sigterm(work: Path) -> None:
    out = work / "terminated.bench"
    command = [sys.executable, "-m", "spectool.cli", *options(work, out, "--prompts", "pl", "--tokens", 400)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as running:
        while not ((out / RUN_FILE).exists() and (out / RUN_FILE).stat().st_size) and running.poll() is None:
            time.sleep(0.05)
        running.terminate()
        _, said = running.communicate(timeout=60)
    measured = len(read_run(out).blocks)
    assert running.returncode == 130 and f"Interrupted after {measured} of 60 prompts" in said
    assert f"{measured} from" in (out / PAGE).read_text(encoding="utf-8")


def test_drawn_outputs_depend_on_the_seed_alone_and_are_not_compared(work: Path) -> None:
    outputs = defaultdict(list)
    for name, seed in (("one", 1), ("same", 1), ("two", 2)):
        out = work / f"drawn-{name}.bench"
        done = run(*options(work, out, "--temp", 0.9, "--seed", seed, "--ignore-eos", "--count", 1), "--json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["outputs"] == 0
        for block in read_run(out).blocks:
            fixed = {(one.drafter, k): one.output for (_, k), one in block.by_configuration.items() if k is not None}
            outputs[name].append(fixed)
    assert outputs["one"] == outputs["same"] != outputs["two"]
