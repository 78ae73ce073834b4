"""A count that is killed goes on where it ended, and gives the same bytes."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spectool import SpectoolError
from spectool.artifacts.artifact import verify_artifact
from spectool.artifacts.resumable import work_path
from spectool.build.counting.options import CountOptions
from spectool.build.counting.plan import Plan
from spectool.build.counting.stage import count_text
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

pytestmark = pytest.mark.system

TOKENIZER = demo_path("target") / "tokenizer.json"
PLAN = Plan(threads=2, part_bytes=15_000, bucket_records=20_000)
SCRIPT = f"""
from pathlib import Path
from spectool.tokenization.opening import open_tokenizer
from spectool.build.counting.options import CountOptions
from spectool.build.counting.stage import count_text
from spectool.build.counting.plan import Plan
from spectool.corpora import open_corpus

if __name__ == "__main__":
    tokenizer = open_tokenizer({str(TOKENIZER)!r})
    count_text(open_corpus("sample:uk"), Path("x.counts"), CountOptions(orders=6), tokenizer, print, plan={PLAN!r})
"""


def quiet(step: str) -> None:
    pass


def run(out: Path, tokenizer: Tokenizer, options: CountOptions, say: Callable[[str], None] = quiet) -> bytes:
    count_text(open_corpus("sample:uk"), out, options, tokenizer, say, plan=PLAN)
    verify_artifact(out)
    return out.read_bytes()


def finished_tasks(work: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (work / "done").glob("*.json")}


def start_and_kill(folder: Path, tasks: int) -> dict[str, int]:
    """Start a count, kill it as soon as that number of tasks is finished, and wait until nothing changes."""
    (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
    process = subprocess.Popen([sys.executable, "script.py"], cwd=folder, stdout=subprocess.DEVNULL)
    work = work_path(folder / "x.counts")
    while process.poll() is None and len(finished_tasks(work)) < tasks:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it was killed"
    before, quiet_since = finished_tasks(work), time.monotonic()
    while time.monotonic() - quiet_since < 0.5:
        time.sleep(0.05)
        if (now := finished_tasks(work)) != before:
            before, quiet_since = now, time.monotonic()
    return before


def kills(folder: Path, rounds: int) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    tokenizer = open_tokenizer(TOKENIZER)
    folder.joinpath("whole").mkdir()
    whole = run(folder / "whole" / "x.counts", tokenizer, CountOptions(orders=6))
    for number in range(rounds):
        here = folder / str(number)
        here.mkdir()
        before = start_and_kill(here, rng.randint(1, 30))
        assert before
        assert not (here / "x.counts").exists()
        at_the_end: dict[str, int] = {}

        def look(step: str, here: Path = here, at_the_end: dict[str, int] = at_the_end) -> None:
            if step == "writing":
                at_the_end.update(finished_tasks(work_path(here / "x.counts")))

        assert run(here / "x.counts", tokenizer, CountOptions(orders=6), look) == whole
        assert at_the_end.items() >= before.items(), "finished tasks were not done again"
        assert len(at_the_end) > len(before)
        assert sorted(path.name for path in here.iterdir()) == ["script.py", "x.counts"]


def test_a_killed_count_goes_on(tmp_path: Path) -> None:
    kills(tmp_path, 2)


@pytest.mark.slow
def test_many_killed_counts_go_on(tmp_path: Path) -> None:
    kills(tmp_path, 25)


def test_other_arguments_start_afresh(tmp_path: Path) -> None:
    work = start_and_kill(tmp_path, 12)
    assert work
    steps: list[dict[str, int]] = []

    def look(step: str) -> None:
        steps.append(finished_tasks(work_path(tmp_path / "x.counts")))

    run(tmp_path / "x.counts", open_tokenizer(TOKENIZER), CountOptions(orders=2), look)
    assert steps[0] == {}


def test_ctrl_c_keeps_the_work_and_says_so(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(
        "\n".join(f"слово{n % 9173} і ще {n % 311} слів, а тоді {n}." for n in range(200_000)), encoding="utf-8"
    )
    out = tmp_path / "x.counts"
    command = [sys.executable, "-m", "spectool.cli", "count", "--tokenizer", TOKENIZER, "--corpus", text]
    command += ["-o", out]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not finished_tasks(work_path(out)):
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert f"Finished work is kept in {work_path(out)}; the same command continues from there." in said
    done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    assert done.stdout.startswith("path ")
    verify_artifact(out)
    assert not work_path(out).exists()


def test_only_one_count_writes_a_place(tmp_path: Path) -> None:
    def again(step: str) -> None:
        with pytest.raises(SpectoolError, match="another count is writing there"):
            run(tmp_path / "x.counts", open_tokenizer(TOKENIZER), CountOptions())

    run(tmp_path / "x.counts", open_tokenizer(TOKENIZER), CountOptions(), again)
