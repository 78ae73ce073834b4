"""Saved runs with unlikely figures: commands refuse them in one sentence, or say something sensible."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from spectool.artifacts.benchmark import Row
from spectool.artifacts.manifest import MANIFEST
from spectool.cli import main

from .runs import DRAFTERS, rows_of, write_run

Rows = list[Row]
Change = Callable[[Rows, Rows], object]
SUMMED = ("proposed", "accepted")


def set_all(rows: Rows, **columns: object) -> None:
    for row in rows:
        row.update(columns)


def add_up(generations: Rows, cycles: Rows) -> None:
    """Make the counts of generations those of their cycles."""
    for row in generations:
        mine = [each for each in cycles if (each["block"], each["order"]) == (row["block"], row["order"])]
        if row["drafter"] != "plain":
            row.update({name: sum(each[name] for each in mine) for name in SUMMED})
            row.update({"tokens": sum(each["committed"] for each in mine), "passes": len(mine)})


REFUSED: dict[str, tuple[Change, str]] = {
    "no time": (
        lambda generations, cycles: set_all(generations, seconds=0.0),
        "block 0, generation 0: expected tokens that took passes and time, got 64 in 64 passes and 0 seconds",
    ),
    "all of the time before decoding": (
        lambda generations, cycles: generations[1].update(draft_prompt_seconds=generations[1]["seconds"]),
        "generation 1: expected tokens that took passes and time",
    ),
    "no tokens": (lambda generations, cycles: generations[0].update(tokens=0), "got 0 in 64 passes"),
    "no passes": (lambda generations, cycles: generations[0].update(passes=0), "got 64 in 0 passes"),
    "a generation twice": (
        lambda generations, cycles: generations.append(generations[1]),
        "block 0, generation 1: expected it once, with plain decoding once a block, got it twice",
    ),
    "plain decoding twice": (
        lambda generations, cycles: generations.append({**generations[0], "order": 99}),
        "block 0, generation 99: expected it once, with plain decoding once a block, got it twice",
    ),
    "a cycle twice": (lambda generations, cycles: cycles.append(cycles[0]), "its cycles have"),
    "cycles of no generation": (
        lambda generations, cycles: cycles.append({**cycles[0], "block": 2**31 - 1}),
        "cycles of 1 unknown generations",
    ),
    "more accepted than proposed": (
        lambda generations, cycles: (cycles[0].update(accepted=9), add_up(generations, cycles)),
        "cycle 0: expected at most 64 draft tokens proposed, all accepted at most, got 2 proposed and 9 accepted",
    ),
    "drafts without end": (
        lambda generations, cycles: (set_all(cycles, proposed=2**24), add_up(generations, cycles)),
        "expected at most 64 draft tokens proposed",
    ),
    "a draft length without end": (
        lambda generations, cycles: generations[1].update(num_draft_tokens=2**31 - 1),
        "generation 1: expected 1 to 64 num_draft_tokens or null, got 2147483647",
    ),
    "drafts of no tokens": (
        lambda generations, cycles: set_all(generations, num_draft_tokens=0),
        "generation 1: expected 1 to 64 num_draft_tokens or null, got 0",
    ),
}
TOLD: dict[str, Change] = {
    "no cycles and no drafts": lambda generations, cycles: (cycles.clear(), generations.clear()),
    "plain decoding alone": lambda generations, cycles: (
        cycles.clear(),
        generations.__setitem__(slice(None), [row for row in generations if row["drafter"] == "plain"]),
    ),
    "drafts alone": lambda generations, cycles: generations.__setitem__(
        slice(None), [row for row in generations if row["drafter"] != "plain"]
    ),
    "the longest times": lambda generations, cycles: (
        set_all(cycles, seconds=1e15, draft_seconds=1e15, pass_seconds=1e15),
        set_all(generations, seconds=1e15, prompt_seconds=1e15, first_token_seconds=1e15),
        set_all(generations, draft_seconds=1e15, pass_seconds=1e15, gap=1e15, peak_memory=2**63 - 1),
    ),
    "one very long and one very short time": lambda generations, cycles: (
        generations[0].update(seconds=1e15),
        generations[1].update(seconds=1e-8, draft_prompt_seconds=0.0),
    ),
    "very long commitments": lambda generations, cycles: (
        set_all(cycles, committed=2**24, source="x\n<b>|`"),
        add_up(generations, cycles),
    ),
    "no names, and no time in cycles": lambda generations, cycles: (
        set_all(generations, language="", kind="", prompt="", strategy=None),
        set_all(cycles, seconds=0.0, draft_seconds=0.0, pass_seconds=0.0, position=2**31 - 1),
    ),
    "odd names, an outlandish temperature and empty outputs": lambda generations, cycles: (
        set_all(generations, language="\x1b[2J\x00", kind="|\n", prompt="$x_$", temperature=1e15),
        set_all(generations, output=[], first_difference=2**31 - 1, gap=0.0),
    ),
    "no drafts proposed": lambda generations, cycles: (
        set_all(cycles, proposed=0, accepted=0, committed=1),
        add_up(generations, cycles),
    ),
    "drafts always right": lambda generations, cycles: (
        set_all(cycles, proposed=64, accepted=64, committed=65),
        add_up(generations, cycles),
    ),
}


def said(path: Path) -> list[str]:
    """Run what reads a run, and return what each says."""
    found = []
    for command in (("inspect", path), ("verify", path), ("report", path, "-o", path.with_name("page"), "--json")):
        done = CliRunner().invoke(main, [str(part) for part in command])
        assert done.exit_code in (0, 1) and "unexpected" not in done.output, (command, done.output)
        assert "Warning" not in done.output and "lacks a figure" not in done.output, (command, done.output)
        if done.exit_code:
            assert done.stderr.startswith("Error: ") and len(done.stderr.splitlines()) == 1, done.stderr
        found.append(done.output)
    return found


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", REFUSED)
def test_figures_that_no_run_has(tmp_path: Path, name: str) -> None:
    change, message = REFUSED[name]
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=2)
    change(generations, cycles)
    _, *checked = said(write_run(tmp_path / "x.bench", generations, cycles))
    for output in checked:
        assert message in output and "Measure the run again" in output


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", TOLD)
def test_figures_that_a_run_might_have(tmp_path: Path, name: str) -> None:
    generations, cycles = rows_of(DRAFTERS[1:], languages=["pl"], kinds=["list"], prompts=6)
    TOLD[name](generations, cycles)
    _, _, reported = said(write_run(tmp_path / "x.bench", generations, cycles))
    if not reported.startswith("Error: "):
        for one in json.loads(reported)["configurations"]:
            assert one["speedup"] > 0 and one["tokens_per_pass"] > 0


def test_generations_that_the_manifest_does_not_name(tmp_path: Path) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=2)
    run = write_run(tmp_path / "x.bench", generations, cycles)
    manifest = (run / MANIFEST).read_text(encoding="utf-8")
    (run / MANIFEST).write_text(manifest.replace('"name": "qwen"', '"name": "gemma"'), encoding="utf-8")
    report = said(run)[2]
    assert "'qwen'" in report and "which its manifest names" in report
