"""Runs of the bundled models: begun, killed, replayed, and compared without what a clock measures."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spectool.measure.bench.run_file import RUN_FILE, Run
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.drafter import Drafter, accepted_length

TARGET = str(demo_path("target"))
TOKENS = 20
Text = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def options(work: Path, out: Path, *more: object) -> list[str]:
    """The command that measures a dictionary and a draft model on three prompts."""
    drafters = f"name=dictionary,dict={work / 'pl.dict'},history", f"name=draft,model={demo_path('draft')}"
    given = ["bench", "--model", TARGET, "--drafter", drafters[0], "--drafter", drafters[1], "--tokens", TOKENS]
    given += ["--prompts", work / "prompts.txt", "--num-draft-tokens", 2, "--num-draft-tokens", "auto", *more]
    return [*map(str, given), "-o", str(out)]


def untimed(run: Run) -> dict[tuple[str, str, int], Text]:
    """What does not depend on time, by prompt and configuration; draft lengths that are learnt do."""
    return {
        (block.prompt, one.drafter, one.num_draft_tokens): (one.output, one.proposed, one.accepted)
        for block in run.blocks
        for one in block.generations
        if one.num_draft_tokens is not None
    }


def replayed(drafter: Drafter, prompt: list[int], output: list[int]) -> tuple[int, int]:
    """Return passes and accepted drafts with the output in the target's place, two drafts a cycle."""
    drafter.start(prompt)
    passes = position = accepted = 0
    while position < len(output):
        proposal = drafter.propose(min(2, TOKENS - position - 1))
        right = accepted_length(proposal.tokens, output[position:])
        committed = output[position : position + right + 1]
        drafter.commit(committed)
        passes, accepted, position = passes + 1, accepted + right, position + len(committed)
    return passes, accepted


@contextmanager
def measuring(work: Path, out: Path) -> Iterator[subprocess.Popen[str]]:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "spectool.cli", *options(work, out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_a_block(process: subprocess.Popen[str], out: Path) -> None:
    """Wait until the header and a block are there."""
    file = out / RUN_FILE
    while not file.exists() or file.read_bytes().count(b"\n") < 2:
        assert process.poll() is None
        time.sleep(0.01)


def killed_after_a_block(work: Path, out: Path) -> bytes:
    """Begin to measure, and kill it when the first block is there; return what it has written."""
    with measuring(work, out) as process:
        wait_for_a_block(process, out)
    return (out / RUN_FILE).read_bytes()
