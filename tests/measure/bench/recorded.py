"""Runs of the bundled models: begun, killed, replayed, and compared without what a clock measures."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner, Result

from spectool.artifacts.benchmark import Benchmark, Row
from spectool.artifacts.resumable import work_path
from spectool.cli import main
from spectool.runtime.decoding.drafter import Drafter, accepted_length
from spectool.runtime.demo_models import demo_path

TARGET = str(demo_path("target"))
TOKENS = 20
MEASURED = (
    *("prompt_seconds", "draft_prompt_seconds", "first_token_seconds", "seconds", "draft_seconds", "pass_seconds"),
    "peak_memory",
)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def untimed(run: Benchmark) -> list[Row]:
    """Return generations without what depends on time; draft lengths that are learnt do."""
    rows = run.generations.to_pylist()
    fixed = [row for row in rows if row["num_draft_tokens"] is not None]
    return [{key: value for key, value in row.items() if key not in MEASURED} for row in fixed]


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
def measuring_in_the_background(work: Path, out: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "spectool.cli", "bench", str(work / "experiment.toml"), "-o", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def killed_after_a_block(work: Path, out: Path) -> Path:
    """Begin to measure, and kill it when the first block is there; return its folder."""
    first = work_path(out) / "block-00000"
    with measuring_in_the_background(work, out) as process:
        while not first.exists():
            assert process.poll() is None
            time.sleep(0.01)
    return first
