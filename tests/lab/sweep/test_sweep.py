"""``spectool lab sweep``: equal to dictionaries built one by one, resumed after a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from spectool.artifacts.dictionary import Dictionary
from spectool.build.dictionary import BackoffOptions
from spectool.build.packs.stage import count_and_build
from spectool.cli import main
from spectool.corpora import open_corpus, sample_path
from spectool.lab.dictspec import DictSpecDrafter, DictSpecOptions, WordNgrams, dictspec_table
from spectool.lab.resumable import work_path
from spectool.lab.sweep.grid import BackoffAxes, DictSpecAxes, Grid, Language
from spectool.lab.sweep.results import SweepRow, read_runs
from spectool.lab.sweep.runs import run_sweep
from spectool.measure.replay import replay
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.tests.tiers import slow
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

TARGET = str(demo_path("target") / "tokenizer.json")
OTHER = str(demo_path("other") / "tokenizer.json")


def grid_file(path: Path, **axes: object) -> Path:
    """A grid of two tokenizers and two languages."""
    axes = {"readings": ["whole", "path"], "entries": [200, 2000], "min_prob": [0.2, 1.0], **axes}
    path.write_text(
        f'[tokenizers]\ntarget = "{TARGET}"\nother = "{OTHER}"\n'
        + '[languages.pl]\nbuild = "sample:pl"\nreplay = "sample:uk"\n'
        + '[languages.uk]\nbuild = "sample:uk"\nreplay = "sample:pl"\n[dictspec]\n'
        + "".join(f"{axis} = {json.dumps(values)}\n" for axis, values in axes.items())
    )
    return path


def sweep(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["lab", "sweep", *map(str, arguments)])


def facts(*arguments: object) -> dict[str, Any]:
    result = sweep(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def timeless(path: Path) -> list[SweepRow]:
    """All runs, but for the time that they took."""
    return [{**row, "seconds": 0.0} for row in read_runs(path / "runs.parquet")]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("swept")
    return folder, facts(grid_file(folder / "grid.toml"), "-o", folder / "out")


def test_what_a_sweep_leaves(swept: tuple[Path, dict[str, Any]]) -> None:
    folder, found = swept
    runs = 2 * 2 * 3 * 2 * 2 * 2
    assert (found["runs"], found["measured"]) == (runs, runs)
    assert [str(path) for path in (folder / "out").iterdir()] == [found["path"]]
    rows = read_runs(folder / "out" / "runs.parquet")
    names = [(pair["language"], pair["tokenizer"]) for pair in found["best"]]
    assert names == list(product(("pl", "uk"), ("other", "target")))
    for name, pair in zip(names, found["best"], strict=True):
        assert len(pair["tokens_per_pass"]) == 2
        of_pair = [row for row in rows if (row["language"], row["tokenizer"]) == name]
        assert {row["fertility"] for row in of_pair} == {pair["fertility"]}
        for reading in ("path", "whole"):
            best = sorted(row["tokens_per_pass"] for row in of_pair if row["reading"] == reading)[-1]
            assert pair["tokens_per_pass"][f"dictspec, {reading}, 8 draft tokens"] == best
    assert len(rows) == runs
    for row in rows:
        assert row["tokens_per_pass"] == row["tokens"] / row["passes"] >= 1
        assert row["fertility"] == row["tokens"] / row["replay_words"] > 1
        assert row["seconds"] > 0
        assert row["num_draft_tokens"] == 8


@pytest.mark.parametrize("name", ["bielik-11b-v2.5", *slow("qwen2.5")])
def test_runs_on_real_tokenizers_equal_tables_that_are_replayed(
    shared: Path, real: Callable[[str], Tokenizer], name: str, tmp_path: Path
) -> None:
    tokenizer, text = real(name), "sample:uk"
    source = str(shared / "tokenizers" / name / "tokenizer.json")
    axes = DictSpecAxes(readings=("whole", "path"), orders=("n123",), entries=(300, 5000), min_prob=(0.2, 0.8))
    uk = Language(build="sample:uk", replay="sample:uk")
    lengths = (3, 8)
    grid = Grid(
        tokenizers={name: source}, languages={"uk": uk}, dictspec=axes, num_draft_tokens=lengths, replay_tokens=2500
    )
    rows, _ = run_sweep(grid, tmp_path / "out")
    assert len(rows) == 16
    counted = WordNgrams(open_corpus(text))
    documents: list[list[int]] = []
    for document in open_corpus(text):
        if sum(map(len, documents)) < 2500:
            documents.append(tokenizer.encode(document))
    for row in rows:
        options = DictSpecOptions(row["order"], row["entries_asked"], row["min_prob"], row["reading"])
        table = dictspec_table(tokenizer, counted, options)
        expected = replay(documents, DictSpecDrafter(table), row["num_draft_tokens"])
        assert row["entries"] == len(table)
        for figure in ("tokens", "passes", "drafted_passes", "proposed", "accepted", "tokens_per_pass", "coverage"):
            assert row[figure] == getattr(expected, figure), (figure, options)
        assert row["acceptance"] == expected.acceptance_rate
        assert row["build_words"] == counted.total


def test_backoff_dictionaries_are_swept(tmp_path: Path) -> None:
    axes = BackoffAxes(max_bytes=(6_000, 9_000), min_prob=(0.0, 0.2))
    uk = Language(build="sample:uk", replay="sample:pl")
    grid = Grid(tokenizers={"target": TARGET}, languages={"uk": uk}, backoff=axes, replay_tokens=2500)
    rows = {(row["max_bytes"], row["min_prob"]): row for row in run_sweep(grid, tmp_path / "out")[0]}
    assert len(rows) == 4
    for (max_bytes, _), row in rows.items():
        assert 0.8 * max_bytes < row["file_bytes"] <= max_bytes
    corpus = open_corpus("sample:uk")
    tokenizer = open_tokenizer(TARGET)
    count_and_build(tokenizer, corpus, tmp_path / "x.dict", BackoffOptions(max_bytes=6_000), lambda step: None)
    documents: list[list[int]] = []
    for document in open_corpus("sample:pl"):
        if sum(map(len, documents)) < 2500:
            documents.append(tokenizer.encode(document))
    for floor in (0.0, 0.2):
        expected = replay(documents, LookupDrafter(Dictionary(tmp_path / "x.dict"), min_probability=floor))
        row = rows[6_000, floor]
        assert (row["passes"], row["proposed"], row["accepted"]) == (
            expected.passes,
            expected.proposed,
            expected.accepted,
        )


def test_only_what_is_new_is_measured(tmp_path: Path) -> None:
    text, grid = tmp_path / "pl.txt", tmp_path / "grid.toml"
    text.write_bytes(sample_path("pl").read_bytes())
    grid.write_text(
        f'[tokenizers]\nt = "{TARGET}"\n[languages.pl]\nbuild = "{text}"\nreplay = "sample:pl"\n'
        '[dictspec]\norders = ["n1"]\nentries = [300]\nmin_prob = [0.2, 1.0]\n'
    )
    command = (grid, "-o", tmp_path / "out")
    assert facts(*command)["measured"] == 2
    grid.write_text(grid.read_text().replace("[0.2, 1.0]", "[0.2, 0.5, 0.8]"))
    found = facts(*command)
    assert (found["runs"], found["measured"]) == (3, 2)
    assert len(read_runs(tmp_path / "out" / "runs.parquet")) == 4, "runs of the other grid are kept"
    text.write_bytes(text.read_bytes() + b"Jeszcze jedno zdanie.\n")
    assert facts(*command)["measured"] == 3, "the text has changed"


def parts_of(out: Path) -> Iterator[Path]:
    """What a sweep under way has finished."""
    return (work_path(out / "runs.parquet") / "done").glob("*.json")


def started(folder: Path, out: Path) -> subprocess.Popen[bytes]:
    """Start a sweep in a process group of its own, and wait until some of its groups are finished."""
    command = [sys.executable, "-m", "spectool.cli", "lab", "sweep", folder / "grid.toml", "-o", out]
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    while process.poll() is None and not list(parts_of(out)):
        time.sleep(0.002)
    return process


def nobody_left(group: int) -> bool:
    """Wait a little until no process of the group lives."""
    for _ in range(200):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, *slow(signal.SIGINT)])
def test_killed_and_resumed(swept: tuple[Path, dict[str, Any]], tmp_path: Path, number: signal.Signals) -> None:
    folder, whole = swept
    out = tmp_path / "out"
    process = started(folder, out)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number), errors.decode()
    assert nobody_left(process.pid)
    finished = sum(len(json.loads(part.read_text())["rows"]) for part in parts_of(out))
    assert 0 < finished < whole["runs"], "killed too late for this test to mean anything"
    assert not (out / "runs.parquet").exists()
    resumed = facts(folder / "grid.toml", "-o", out)
    assert (resumed["runs"], resumed["measured"]) == (whole["runs"], whole["runs"] - finished)
    assert timeless(out) == timeless(folder / "out")
    assert not work_path(out / "runs.parquet").exists()
