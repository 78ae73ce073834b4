"""The command: a run becomes a page whose figures are the run's, and which opens by itself."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.image import imread

from spectool.artifacts.benchmark import Benchmark, Row
from spectool.cli import main
from spectool.measure.intervals import geometric_mean
from spectool.measure.report.costs import plain_step
from spectool.measure.report.plots import cycle_times
from spectool.measure.report.summary import verdicts
from spectool.measure.report.trials import read_trials
from spectool.runtime.draft_length.cost_model import CostModel
from spectool.tests.measure.report.pages import Section, call, page_of
from spectool.tests.measure.report.runs import DRAFT_READING, DRAFTERS, READING, STEP, Truth, rows_of, write_run

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generations, cycles = rows_of()
    for row in generations:
        row["joules"] = 30 * row["seconds"]
    different = [row for row in generations if row["drafter"] == "history"][:3]
    for row, gap in zip(different, (0.001, 0.1, 2.0), strict=True):
        row["first_difference"], row["gap"] = 5, gap
    power = {"source": "stated", "watts": 30.0}
    return write_run(tmp_path_factory.mktemp("runs") / "some.bench", generations, cycles, power=power)


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
    assert (best["drafter"], best["strategy"], best["prompts"]) == ("qwen", "anchored", 32)
    assert best["low"] < best["speedup"] < best["high"]
    assert [verdict.partition(":")[0] for verdict in told["verdict"]] == ["target, pl", "target, uk"]
    assert {one["different"] for one in told["configurations"] if one["drafter"] == "qwen"} == {0}


def test_the_same_run_gives_the_same_bytes(run: Path, told: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "page"
    assert "target, pl: drafting pays; the fastest of 6 configurations, qwen, anchored" in call(
        str(run), "-o", str(page)
    )
    assert len(list(page.iterdir())) == len(told["files"])
    for file in page.iterdir():
        assert file.read_bytes() == (Path(told["path"]) / file.name).read_bytes(), file.name


def test_acceptance_and_speed_are_those_of_the_run(run: Path, page: dict[str, Section]) -> None:
    table = Benchmark(run).generations.to_pylist()
    rows = [
        row
        for row in table
        if (row["drafter"], row["strategy"], row["num_draft_tokens"]) == ("qwen", "anchored", 4)
        and (row["language"], row["kind"]) == ("pl", "question")
    ]
    plain = {row["block"]: row for row in table if row["drafter"] == "plain"}
    alpha = sum(row["accepted"] / row["proposed"] for row in rows) / len(rows)
    ratios = [plain[row["block"]]["seconds"] / 64 / (row["seconds"] / row["tokens"]) for row in rows]
    assert len(rows) == 8
    label = "qwen, anchored, k = 4"
    assert page["Acceptance"].row(label)["question"].startswith(f"{100 * alpha:.0f} ± ")
    assert page["Speed"].row(label)["question"].startswith(f"{geometric_mean(ratios):.2f} ± ")
    rates = [row["tokens"] / row["seconds"] for row in rows]
    assert page["Speed"].row(label, 2)["question"] == f"{sum(rates) / 8:.1f}"
    assert float(page["Speed"].row("plain", 2)["all"]) == pytest.approx(1 / STEP, rel=0.03)
    both = page["Languages side by side"].row(label)
    assert float(both["pl: tokens per pass"]) > float(both["uk: tokens per pass"])
    best = page["Languages side by side"].row("the fastest of all")
    assert float(best["uk: speed-up"].split()[0]) >= float(both["uk: speed-up"].split()[0])


def test_a_break_even_is_where_the_model_has_it(page: dict[str, Section]) -> None:
    # Cycles cost what the model says, so that the lines meet plain decoding at its exact break-even.
    exact = 100 * CostModel(0.07, 0.05).exact_break_even(4)
    told = page["Break-even"].row("qwen, anchored, k = 4")["all"]
    value, reach = map(float, re.match(r"(\d+) ± (\d+)%", told).groups())  # type: ignore[union-attr]
    assert abs(value - exact) <= reach + 1
    for k in (2, 4):
        model = page["Cost model"].row("qwen, anchored")
        assert model[f"k = {k}: exact"] != model[f"k = {k}: r + βk"]
        assert float(model[f"k = {k}: exact"][:-1]) == pytest.approx(
            100 * CostModel(0.07, 0.05).exact_break_even(k), abs=3
        )
    assert page["Cost model"].row("qwen, anchored")["r by size"] == "0.073"


def test_time_energy_sources_and_differences(page: dict[str, Section]) -> None:
    time = page["Where the time goes"].row("qwen, naive, k = 2")
    assert float(time["drafting"]) == pytest.approx(1000 * STEP * 0.07 * 3, rel=0.03)
    assert float(time["in plain steps"]) == pytest.approx(CostModel(0.07, 0.05).cost(2), rel=0.03)
    plain, history = (page["Where the time goes"].row(name) for name in ("plain", "history, k = 4"))
    assert {row["target reads the prompt"] for row in (time, plain, history)} == {f"{1000 * READING:.0f}"}
    assert time["drafter reads it"] == f"{1000 * DRAFT_READING:.0f}"
    assert (plain["first token"], time["first token"]) == ("150", "154")
    assert plain["drafter reads it"] == history["drafter reads it"] == "—"
    assert float(page["Energy and memory"].row("plain")["J/token"]) == pytest.approx(30 * STEP, rel=0.03)
    assert "as stated" in page["Energy and memory"].text[0]
    assert "every draft model of the target is loaded with every configuration" in page["Energy and memory"].text[1]
    assert "Sources of drafts" not in page  # every configuration has one
    told = page["Is the output the same?"].row("history, k = 2")
    assert (told["that differ"], told["near-ties"], told["largest gap"]) == ("2", "1", "2")


def test_a_run_without_a_single_draft_has_its_page(tmp_path: Path) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=3)
    for row in (*generations, *cycles):
        row["proposed"] = row["accepted"] = 0
    found = page_of(write_run(tmp_path / "x.bench", generations, cycles))
    assert found["Acceptance"].row("history, k = 2") == {"all": "—", "pooled": "—"}
    assert found["Tokens per pass"].row("history, k = 2")["geometric"] == "—"


def test_several_sources_are_told_apart(tmp_path: Path) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=3)
    for cycle in cycles[::3]:
        cycle["source"] = "dictionary"
    found = page_of(write_run(tmp_path / "x.bench", generations, cycles))
    shares = [found["Sources of drafts"].row(f"qwen, naive, k = 2: {name}") for name in ("qwen", "dictionary")]
    assert sum(float(share["of all cycles"][:-1]) for share in shares) == pytest.approx(100, abs=1)
    assert "Languages side by side" not in found


def test_a_draft_as_long_as_pays_and_several_targets(tmp_path: Path) -> None:
    generations: list[Row] = []
    cycles: list[Row] = []
    for number, model in enumerate(("small", "large")):
        for rows, drawn in zip((generations, cycles), rows_of(model=model, repetitions=2, prompts=3), strict=True):
            rows += [row | {"block": row["block"] + 100 * number} for row in drawn]
    of_model = {row["block"]: row["model"] for row in generations}
    for row in generations:
        if of_model[row["block"]] == "large" and row["drafter"] != "plain":
            row["num_draft_tokens"] = None if row["num_draft_tokens"] == 4 else 2
    run = write_run(tmp_path / "x.bench", generations, cycles)
    trials, found = read_trials(Benchmark(run)), page_of(run)
    assert [caption.rpartition("Here: ")[2] for caption in found["Acceptance"].captions] == [
        *("language pl, target small.", "language uk, target small."),
        *("language pl, target large.", "language uk, target large."),
    ]
    assert found["Acceptance"].row("qwen, naive, k = auto", 2)["question"] != "—"
    assert found["Draft length"].row("qwen, naive", 2)["accepted, k = 4"] == "—"
    timed = found["Cost model"].row("large: qwen, naive")
    assert timed["r"].endswith("(timed)") and float(timed["r timed"]) == pytest.approx(0.07, rel=0.03)
    assert set(trials.drafted.repetitions) == {2}


def test_drafters_of_one_language_are_compared_on_its_prompts(tmp_path: Path) -> None:
    # In the second language, which alone the best drafter serves, the machine is three times as slow.
    cost = CostModel(0.01, 0.01)
    generations, cycles = rows_of([*DRAFTERS, Truth("apt4", "anchored", 0.95, cost)])
    generations = [row for row in generations if row["language"] == "uk" or row["drafter"] != "apt4"]
    slow = {row["block"] for row in generations if row["language"] == "uk"}
    for row in (*generations, *cycles):
        if row["block"] in slow:
            times = [name for name in ("seconds", "draft_seconds", "pass_seconds") if name in row]
            row |= {name: 3 * row[name] for name in times}
    for row in generations:
        row["joules"] = 30 * row["seconds"]
    opened = Benchmark(write_run(tmp_path / "x.bench", generations, cycles))
    trials = read_trials(opened)
    polish, ukrainian = verdicts(trials)
    assert (polish.scope, len(polish.every), polish.speedup.n) == ("target, pl", 6, 16)
    assert (ukrainian.scope, len(ukrainian.every)) == ("target, uk", 8)
    assert polish.label.startswith("qwen, ") and ukrainian.label.startswith("apt4, ")
    found = page_of(opened.path)
    text = found["The answer"].text
    assert "Of 6 configurations, " in text[3] and "Of 8 configurations, " in text[8]
    assert f"It takes {cost.cost(4):.1f}" in text[6]
    label = "apt4, anchored, k = 4"
    assert float(found["Where the time goes"].row(label)["in plain steps"]) == pytest.approx(cost.cost(4), rel=0.03)
    change = float(found["Energy and memory"].row(label)["change"][:-1]) / 100
    assert change == pytest.approx(1 / ukrainian.speedup.value - 1, abs=0.03)
    best = trials.drafted[trials.drafted.drafter == "apt4"]
    assert plain_step(trials, best) == pytest.approx(3 * STEP, rel=0.03)
    alone = replace(trials, drafted=best)
    assert cycle_times(alone) == cycle_times(replace(alone, plain=trials.plain[trials.plain.language == "uk"]))


def test_drawn_outputs_are_not_said_to_be_compared(tmp_path: Path) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=3)
    run = write_run(tmp_path / "x.bench", generations, cycles, temperature=0.7)
    found = page_of(run)
    (told,) = found["Is the output the same?"].text
    assert "at a temperature above 0 were drawn and not compared" in told
    everything = " ".join(paragraph for section in found.values() for paragraph in section.text)
    assert "token for token" not in everything and "The text stays the same" not in everything
    assert {one["different"] for one in json.loads(call(str(run), "--json"))["configurations"]} == {None}


def test_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    names = ["_hidden", "a $x_$ b", "$5 or \\$6"]
    cost = CostModel(0.05, 0.02)
    generations, cycles = rows_of([Truth(name, "naive", 0.5, cost) for name in names], ["_pl", "$^$"], prompts=2)
    folder = tmp_path / "page"
    files = json.loads(call(str(write_run(tmp_path / "x.bench", generations, cycles)), "-o", str(folder), "--json"))
    drawn = [
        {"".join(text.itertext()).lstrip("\u2060") for text in xml.etree.ElementTree.parse(folder / name).iter()}
        for name in files["files"]
        if name.endswith(".svg")
    ]
    of_all, by_acceptance, times, geometric = drawn
    assert {f"{name}, naive, k = 2" for name in names} <= of_all & times
    assert {"_pl", "$^$"} <= of_all
    assert {f"{name}, naive" for name in names} <= by_acceptance
    assert set(names) <= geometric


def test_sizes_are_of_each_targets_drafter(tmp_path: Path) -> None:
    generations: list[Row] = []
    cycles: list[Row] = []
    for number, model in enumerate(("small", "large")):
        for rows, drawn in zip((generations, cycles), rows_of(model=model, languages=["pl"], prompts=3), strict=True):
            rows += [row | {"block": row["block"] + 100 * number} for row in drawn]
    sizes = {"sizes": {"small": 10**9, "large": 10**10}}
    sizes["draft_sizes"] = {"small": {"qwen": 10**8}, "large": {"qwen": 5 * 10**9}}
    found = page_of(write_run(tmp_path / "x.bench", generations, cycles, **sizes))
    assert found["Cost model"].row("small: qwen, naive")["r by size"] == "0.100"
    assert found["Cost model"].row("large: qwen, naive")["r by size"] == "0.500"
    small, large = (text for text in found["What was measured"].text if text.startswith("Target"))
    assert "draft models: qwen, 100.0 MB;" in small and "draft models: qwen, 5.0 GB;" in large


def test_acceptance_by_quantisation(tmp_path: Path) -> None:
    cost = CostModel(0.07, 0.05)
    truths = [Truth("qwen", "anchored", 0.8, cost), Truth("qwen-4bit", "anchored", 0.5, cost), DRAFTERS[0]]
    generations, cycles = rows_of(truths, languages=["pl"], prompts=3)
    drafts: dict[str, list[int]] = {"qwen": [], "qwen-4bit": [4, 6]}
    bits = {"bits": {"target": [8]}, "draft_bits": {"target": drafts}}
    found = page_of(write_run(tmp_path / "x.bench", generations, cycles, **bits))["Where drafts are accepted"]
    assert list(found.tables[0].index) == ["target, qwen", "target, qwen-4bit"], "history has no weights"
    whole, packed = (found.row(f"target, {drafter}") for drafter in drafts)
    assert (whole["target's bits"], whole["draft's bits"]) == ("8", "not quantised")
    assert (packed["target's bits"], packed["draft's bits"]) == ("8", "4 and 6")
    qwen = [row for row in generations if row["drafter"] == "qwen"]
    accepted = sum(row["accepted"] for row in qwen) / sum(row["proposed"] for row in qwen)
    assert whole["accepted"] == f"{accepted:.0%}" != packed["accepted"]
    drafts["qwen"] = [4, 6]
    same = page_of(write_run(tmp_path / "y.bench", generations, cycles, **bits))["Where drafts are accepted"]
    assert not any("draft's bits" in table.columns for table in same.tables)


def test_prompts_left_out_are_counted_once(tmp_path: Path) -> None:
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=4, repetitions=3)
    for row in generations:
        if row["prompt"] in ("list-0", "list-2"):
            row["tokens"] = 5
    text = page_of(write_run(tmp_path / "x.bench", generations, cycles))["What was measured"].text
    assert text[-1].startswith("Left out of all that follows: 2 prompts whose output")
    assert "decoding took 1.5 minutes" in text[0]
    assert "3 times with each" in text[2]


def test_plots_of_an_earlier_page_go(run: Path, tmp_path: Path) -> None:
    page = tmp_path / "page"
    generations, cycles = rows_of(languages=["pl"], kinds=["list"], prompts=3)
    for row in generations:
        row["num_draft_tokens"] = 0 if row["drafter"] == "plain" else None
    few = write_run(tmp_path / "few.bench", generations, cycles)
    before = json.loads(call(str(run), "-o", str(page), "--json"))["files"]
    (page / "figure-99.svg").write_text("a user's own", encoding="utf-8")
    after = json.loads(call(str(few), "-o", str(page), "--json"))["files"]
    assert len(after) < len(before)
    assert {path.name for path in page.iterdir()} == {*after, "figure-99.svg"}


def test_an_existing_folder_that_is_no_report_is_left_alone(run: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    done = CliRunner().invoke(main, ["report", str(run), "-o", str(tmp_path)])
    assert done.exit_code == 1
    assert "exists and is no report. Choose another -o" in done.output
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


def test_what_is_missing_is_said(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(main, ["report", str(tmp_path / "none.bench")])
    assert done.exit_code == 1 and "no such artifact" in done.output
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = CliRunner().invoke(main, ["report", str(run)])
    assert done.exit_code == 1
    assert "spectool report needs pandas, scipy, matplotlib" in done.output
    assert "pip install 'spectool[report]'" in done.output


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
