"""The command: a run becomes a page whose figures are the run's, and which opens by itself."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.image import imread

from spectool.artifacts.benchmark import Benchmark, Row
from spectool.cli import main
from spectool.lab.paper_tables.cost_model import CostModel
from spectool.measure.intervals import geometric_mean
from spectool.measure.report.trials import read_trials
from spectool.measure.report.verdicts import verdicts
from spectool.tests.measure.report.pages import Section, call, page_of
from spectool.tests.measure.report.runs import DRAFTERS, Truth, rows_of, write_run

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generations, cycles = rows_of()
    different = [row for row in generations if row["drafter"] == "history"][:3]
    for row, gap in zip(different, (0.001, 0.1, 2.0), strict=True):
        row["first_difference"], row["gap"] = 5, gap
    return write_run(tmp_path_factory.mktemp("runs") / "some.bench", generations, cycles)


@pytest.fixture(scope="module")
def page(run: Path) -> dict[str, Section]:
    return page_of(run)


@pytest.fixture(scope="module")
def told(run: Path) -> dict[str, Any]:
    """What the command says, and by that its files beside the run."""
    found: dict[str, Any] = json.loads(call(str(run), "--json"))
    return found


def test_all_files_are_written_beside_the_run(run: Path, told: dict[str, Any]) -> None:
    folder = run.with_name("some.bench-report")
    assert told["path"] == str(folder)
    assert sorted(told["files"]) == sorted(path.name for path in folder.iterdir())
    assert {"report.html", "report.md"} < set(told["files"])
    page = (folder / "report.md").read_text(encoding="utf-8")
    plots = re.findall(r"\(<(figure-\d\.svg)>\)", page)
    assert sorted(plots) == sorted(name for name in told["files"] if name.endswith(".svg"))
    for plot in plots:
        assert xml.etree.ElementTree.parse(folder / plot).getroot().tag.endswith("svg")
    best = max(told["configurations"], key=lambda one: one["speedup"])
    assert (best["drafter"], best["strategy"], best["prompts"]) == ("qwen", "byte-aligned", 32)
    assert best["low"] < best["speedup"] < best["high"]
    assert [verdict.partition(":")[0] for verdict in told["verdict"]] == ["target, pl", "target, uk"]
    assert {one["different"] for one in told["configurations"] if one["drafter"] == "qwen"} == {0}


def test_the_same_run_gives_the_same_bytes(run: Path, told: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "page"
    assert "target, pl: drafting pays; the fastest of 6 configurations, qwen, byte-aligned" in call(
        str(run), "-o", str(page)
    )
    assert len(list(page.iterdir())) == len(told["files"])
    for file in page.iterdir():
        assert file.read_bytes() == (Path(told["path"]) / file.name).read_bytes(), file.name


def test_figures_are_those_of_the_run(run: Path, page: dict[str, Section]) -> None:
    table = Benchmark(run).generations.to_pylist()
    rows = [
        row
        for row in table
        if (row["drafter"], row["strategy"], row["num_draft_tokens"]) == ("qwen", "byte-aligned", 4)
        and row["language"] == "pl"
    ]
    plain = {row["block"]: row for row in table if row["drafter"] == "plain"}
    ratios = [plain[row["block"]]["seconds"] / 64 / (row["seconds"] / row["tokens"]) for row in rows]
    cells = page["All configurations"].tables[0]
    (shown,) = (
        row
        for row in cells.loc["target, pl"].to_dict("records")
        if (row["drafter"], row["strategy"], row["k"]) == ("qwen", "byte-aligned", "4")
    )
    assert shown["speed-up"] == f"{geometric_mean(ratios):.2f}" and shown["prompts"] == "16"
    assert shown["acceptance"] == f"{sum(row['accepted'] for row in rows) / sum(row['proposed'] for row in rows):.0%}"
    assert float(shown["plain steps per pass"]) == pytest.approx(CostModel(0.07, 0.05).cost(4), rel=0.03)


def test_outputs_that_differ_are_counted_with_their_gaps(page: dict[str, Section]) -> None:
    (said,) = page["Is the output the same?"].text
    assert "192 drafted outputs" in said and "3 are different" in said
    assert "2 of 3 began at such a near-tie" in said and "the largest gap is 2." in said


def test_a_run_without_a_single_draft_has_its_page(tmp_path: Path) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=3)
    for row in (*generations, *cycles):
        row["proposed"] = row["accepted"] = 0
    found = page_of(write_run(tmp_path / "x.bench", generations, cycles))
    assert set(found["All configurations"].tables[0]["acceptance"]) == {"—"}


def test_several_targets_and_automatic_draft_lengths(tmp_path: Path) -> None:
    generations: list[Row] = []
    cycles: list[Row] = []
    for number, model in enumerate(("small", "large")):
        for rows, drawn in zip((generations, cycles), rows_of(model=model, repetitions=2, prompts=3), strict=True):
            rows += [row | {"block": row["block"] + 100 * number} for row in drawn]
    for row in generations:
        if row["model"] == "large" and row["drafter"] != "plain":
            row["num_draft_tokens"] = None if row["num_draft_tokens"] == 4 else 2
    sizes = {"sizes": {"small": 10**9, "large": 10**10}}
    sizes["draft_sizes"] = {"small": {"qwen": 10**8}, "large": {"qwen": 5 * 10**9}}
    found = page_of(write_run(tmp_path / "x.bench", generations, cycles, **sizes))
    table = found["All configurations"].tables[0]
    assert list(dict.fromkeys(table.index)) == ["small, pl", "small, uk", "large, pl", "large, uk"]
    assert set(table.loc["large, pl", "k"]) == {"2", "auto"} and set(table["prompts"]) == {"6"}
    small, large = (text for text in found["What was measured"].text if text.startswith("Target"))
    assert "draft models: qwen, 100.0 MB" in small and "draft models: qwen, 5.0 GB" in large


def test_drafters_of_one_language_are_compared_on_its_prompts(tmp_path: Path) -> None:
    # In the second language, which alone the best drafter serves, the machine is three times as slow.
    cost = CostModel(0.01, 0.01)
    generations, cycles = rows_of([*DRAFTERS, Truth("apt4", "byte-aligned", 0.95, cost)])
    generations = [row for row in generations if row["language"] == "uk" or row["drafter"] != "apt4"]
    slow = {row["block"] for row in generations if row["language"] == "uk"}
    for row in (*generations, *cycles):
        if row["block"] in slow:
            times = [name for name in ("seconds", "draft_seconds", "pass_seconds") if name in row]
            row |= {name: 3 * row[name] for name in times}
    opened = Benchmark(write_run(tmp_path / "x.bench", generations, cycles))
    polish, ukrainian = verdicts(read_trials(opened))
    assert (polish.scope, len(polish.results), polish.fastest.speedup.n) == ("target, pl", 6, 16)
    assert (ukrainian.scope, len(ukrainian.results)) == ("target, uk", 8)
    assert (polish.fastest.drafter, ukrainian.fastest.drafter) == ("qwen", "apt4")
    length = ukrainian.fastest.num_draft_tokens or 0
    assert sum(ukrainian.fastest.cycle.values()) == pytest.approx(cost.cost(length), rel=0.03)
    text = " ".join(page_of(opened.path)["The answer"].text)
    assert "Of 6 configurations, " in text and "Of 8 configurations, " in text


def test_text_that_goes_in_circles_is_warned_of(tmp_path: Path) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=6)
    assert "repetitions" not in " ".join(
        page_of(write_run(tmp_path / "x.bench", generations, cycles))["The answer"].text
    )
    for row in generations:
        row["output"] = [1, 2] * 32
    text = " ".join(page_of(write_run(tmp_path / "y.bench", generations, cycles))["The answer"].text)
    assert "97% of the 4-grams" in text


def test_drawn_outputs_are_not_said_to_be_compared(tmp_path: Path) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=3)
    run = write_run(tmp_path / "x.bench", generations, cycles, temperature=0.7)
    found = page_of(run)
    (told,) = found["Is the output the same?"].text
    assert "are drawn, so they were not compared" in told
    everything = " ".join(paragraph for section in found.values() for paragraph in section.text)
    assert "token for token" not in everything
    assert {one["different"] for one in json.loads(call(str(run), "--json"))["configurations"]} == {None}


def test_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    names = ["_hidden", "a $x_$ b", "$5 or \\$6"]
    cost = CostModel(0.05, 0.02)
    generations, cycles = rows_of([Truth(name, "naive", 0.5, cost) for name in names], ["_pl", "$^$"], prompts=2)
    folder = tmp_path / "page"
    files = json.loads(call(str(write_run(tmp_path / "x.bench", generations, cycles)), "-o", str(folder), "--json"))
    drawn = [
        {"".join(text.itertext()) for text in xml.etree.ElementTree.parse(folder / name).iter()}
        for name in files["files"]
        if name.endswith(".svg")
    ]
    assert len(drawn) == 1
    for texts in drawn:
        assert {f"{name}, naive, k = 2" for name in names} <= texts
        assert {"target, _pl", "target, $^$"} <= texts


def test_prompts_left_out_are_counted_once(tmp_path: Path) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=4, repetitions=3)
    for row in generations:
        if row["prompt"] in ("list-0", "list-2"):
            row["tokens"] = 5
    text = page_of(write_run(tmp_path / "x.bench", generations, cycles))["What was measured"].text
    assert "2 prompts with an output of fewer than 8 tokens" in text[-1]
    assert "decoding took 1.5 minutes" in text[0]


def test_an_existing_folder_that_is_no_report_is_left_alone(run: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    done = CliRunner().invoke(main, ["report", str(run), "-o", str(tmp_path)])
    assert done.exit_code == 1
    assert "exists and is not a report. Choose another -o" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.system
@pytest.mark.parametrize("there", [False, True])
def test_a_full_disk_leaves_nothing_behind(run: Path, tmp_path: Path, there: bool) -> None:
    page = tmp_path / "page"
    if there:
        call(str(run), "-o", str(page))
    before = {path.name: path.read_bytes() for path in page.glob("*")}
    command = [sys.executable, "-m", "spectool.cli", "report", str(run), "-o", str(page)]
    script = f"ulimit -f 4; exec {shlex.join(command)}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: {page}: cannot be written (File too large). Check the free space"), (
        done.stderr
    )
    assert {path.name: path.read_bytes() for path in page.glob("*")} == before and page.exists() is there
    call(str(run), "-o", str(page))


def test_a_run_that_is_not_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["report", str(tmp_path / "none.bench")])
    assert done.exit_code == 1 and "no such artifact" in done.output


@pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome to open the page in")
def test_the_page_opens_in_a_browser_without_a_network(told: dict[str, Any], tmp_path: Path) -> None:
    page, shot = Path(told["path"]) / "report.html", tmp_path / "shot.png"
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    options += ["--proxy-server=127.0.0.1:9", "--disable-background-networking", "--enable-logging=stderr"]
    options += [f"--screenshot={shot}", "--window-size=500,2500"]
    done = subprocess.run([str(BROWSER), *options, f"file://{page}"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Refused to" not in done.stderr and "Content Security Policy" not in done.stderr
    seen = imread(shot)
    blue = np.abs(seen[:, :, :3] - np.array([0x00, 0x72, 0xB2]) / 255).max(axis=2) < 0.02
    assert seen.shape[:2] == (2500, 500)
    assert blue.sum() > 100  # the first figure is drawn
