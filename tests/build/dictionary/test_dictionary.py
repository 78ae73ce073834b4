"""The stage behind ``build-dict``: what it writes, twice the same, and what a killed one leaves."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spectool import ArtifactError
from spectool.artifacts.artifact import open_artifact
from spectool.build.dictionary import BackoffOptions
from spectool.build.packs.stage import count_and_build
from spectool.corpora import Corpus, open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.tokenization.tokenizer import Tokenizer

TOKENIZER = demo_path("target") / "tokenizer.json"


def built(tokenizer: Tokenizer, corpus: Corpus, out: Path) -> None:
    options = BackoffOptions(max_bytes=20_000, min_count=1)
    count_and_build(tokenizer, corpus, out, options, lambda step: None)


def test_a_foreign_folder_is_not_replaced(tmp_path: Path, bundled: Tokenizer) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ArtifactError, match="exists and is not a whole artifact"):
        built(bundled, open_corpus("sample:pl"), tmp_path)


def spectool(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "spectool.cli", *map(str, arguments)]


def build_command(out: Path, corpus: str) -> list[str]:
    return spectool("build-dict", "--tokenizer", TOKENIZER, "--corpus", corpus, "-o", out)


def kill_at_random(rng: random.Random, number: int, command: list[str], out: Path, longest: float) -> float | None:
    """Start a build and kill it anywhere or while it writes, by turns; None if it ended before."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started = time.monotonic()
    before = set(out.parent.iterdir())
    while number % 2 and process.poll() is None and not set(out.parent.iterdir()) - before - {out}:
        pass
    time.sleep(rng.uniform(0, 0.001 if number % 2 else longest))
    ended = process.poll() is not None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return None if ended else time.monotonic() - started


def kills(rounds: int, out: Path) -> None:
    """Kill builds of two different dictionaries in turn, and look at what is there after each.

    More than a third of ``rounds`` must be killed in time: where builds end sooner than they did at first, there are
    more rounds.
    """
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    whole: dict[str, bytes] = {}
    longest = 0.0
    for corpus in ("sample:pl", "sample:uk"):
        started = time.monotonic()
        subprocess.run(build_command(out, corpus), check=True, capture_output=True)
        longest = max(longest, time.monotonic() - started)
        whole[corpus] = out.read_bytes()
    before: bytes | None = whole["sample:uk"]
    number = killed = 0
    while number < rounds or killed <= rounds // 3:
        corpus = ("sample:pl", "sample:uk")[number % 2]
        if number % 5 == 1 and out.exists():
            out.unlink()
            before = None
        moment = kill_at_random(rng, number, build_command(out, corpus), out, longest)
        killed += moment is not None
        where = f"round {number}, killed after {moment} s"
        if out.exists():
            now = out.read_bytes()
            assert now in (before, whole[corpus]), where
            open_artifact(out)
            before = now
        else:
            assert before is None, where
        number += 1
        assert number < 10 * rounds, f"{killed} builds killed in time"
    for left in out.parent.glob(".*.partial"):  # a younger one may be another run's
        os.utime(left, (0, 0))
    subprocess.run(build_command(out, "sample:pl"), check=True, capture_output=True)
    assert out.read_bytes() == whole["sample:pl"]
    done = subprocess.run(spectool("inspect", out), check=True, capture_output=True, text=True)
    assert done.stdout.split()[:2] == ["format", "spectool-dictionary"]
    assert [path.name for path in out.parent.iterdir()] == [out.name], "scratch of the killed ones is removed"


@pytest.mark.nightly
def test_killed_builds_leave_the_old_artifact_or_the_new_one(tmp_path: Path) -> None:
    kills(6, tmp_path / "x.dict")


@pytest.mark.slow
def test_many_killed_builds(tmp_path: Path) -> None:
    kills(60, tmp_path / "x.dict")
