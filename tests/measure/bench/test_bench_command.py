"""``spectool bench``: drafters and prompts as options, and refusals."""

from pathlib import Path

import pytest

from spectool.measure.bench.run_file import PLAIN, RUN_FILE, read_run
from spectool.runtime.demo_models import demo_path
from spectool.tests.measure.bench.recorded import TARGET
from spectool.tests.running import error_of, run

ONE = ("bench", "--model", TARGET, "--prompts", "pl:list", "--count", 1, "--tokens", 6)
HISTORY = (*ONE, "--drafter", "history")


@pytest.mark.system
def test_a_dictionary_is_found_by_its_name(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = work / "cache"
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(cache / name))
    for corpus in ("sample:pl", "sample:uk"):
        built = run("build-dict", "--tokenizer", TARGET, "--corpus", corpus, "--max-bytes", "14KB")
        assert built.exit_code == 0, built.output
    (pl,) = (cache / "spectool").glob("sample-pl*.dict")
    out = work / "named.bench"
    one = ("bench", "--model", TARGET, "--prompts", "pl:list", "--count", 1, "--tokens", 8, "--num-draft-tokens", 2)
    assert run(*one, "--drafter", f"dict={pl.name}", "-o", out).exit_code == 0
    written = run("generate", "--model", TARGET, "--dict", pl.stem, "-p", "Most w", "-m", 4)
    missing = run("generate", "--model", TARGET, "--dict", "nothing", "-p", "Most w")
    assert written.exit_code == 0, written.output
    assert "nothing: no such file" in missing.stderr


def test_options_say_what_is_measured(tmp_path: Path) -> None:
    drafter = f"name=both,history,model={demo_path('draft')},verify=exact"
    more = ("--num-draft-tokens", 3, "--num-draft-tokens", "auto", "--temp", 0.8, "--temp", 0, "--temp", 0.8)
    done = run(*ONE, "--drafter", drafter, "--drafter", "history", *more, "-o", tmp_path / "x.bench")
    assert done.exit_code == 0, done.output
    assert "too short to tell whether drafting pays" in done.stdout and "--ignore-eos" in done.stderr
    found = read_run(tmp_path / "x.bench")
    assert [each.temperature for each in found.blocks] == [0.8, 0.0]
    wanted = {(PLAIN, 0), *((name, k) for name in ("both", "history") for k in (3, None))}
    assert all(each.by_configuration().keys() == wanted for each in found.blocks)
    assert {each.kind for each in found.blocks} == {"list"}
    assert found.header.options.drafters["both"].verify == "exact"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((*ONE, "--drafter", "speed=2"), "'speed=2': expected one of history"),
        ((*ONE, "--drafter", "dict="), "'dict=': expected one of history"),
        ((*ONE, "--drafter", "align=x"), "expected something that drafts"),
        ((*HISTORY[:-1], "history,align=x"), "expected a model=… with align=…"),
        ((*HISTORY[:-1], "history,verify=never"), "expected verify=exact or verify=rejection"),
        ((*HISTORY[:-1], "history,verify=rejection"), "expected a model=… with verify=rejection"),
        ((*ONE, "--drafter", "dict=auto"), "expected names of dictionaries"),
        ((*HISTORY, "--drafter", "history"), "a name that none has yet, got 'history'. Add name=…"),
        ((*HISTORY, "--drafter", "name=plain,history"), "a name that none has yet, got 'plain'"),
        ((*HISTORY, "--window", 64), "--window applies to prompts from a corpus"),
        (ONE, "Missing option '--drafter'"),
        (("bench", "--model", TARGET, "--drafter", "history"), "Missing option '--prompts'"),
        ((*HISTORY, "--num-draft-tokens", 65), "--num-draft-tokens"),
        ((*HISTORY, "--model", "x" * 5000), "model: expected at most 4096 characters, got xxx"),
        ((*HISTORY[:-1], "history,name=" + "x" * 5000), "expected at most 4096 characters, got xxx"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, arguments: tuple[object, ...], expected: str) -> None:
    result = run(*arguments, "-o", tmp_path / "x.bench")
    assert result.exit_code == 2 and expected in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((*ONE, "--drafter", "dict=none.dict"), "none.dict: no such file"),
        ((*HISTORY, "--prompts", "uk"), "expected a prompt of each source, got 1 for 2"),
        ((*HISTORY, "--prompts", "nowhere.txt", "--count", 2), "Built-in prompts: pl, uk"),
        ((*HISTORY, "--prompts", "pl", "--count", 10), "got pl-list-01 twice"),
        (("bench", "--model", TARGET, "--prompts", "pl:tale", "--drafter", "history"), "expected one of the kinds"),
    ],
)
def test_a_start_that_fails_leaves_nothing(tmp_path: Path, arguments: tuple[object, ...], expected: str) -> None:
    assert expected in error_of(run(*arguments, "-o", tmp_path / "x.bench"))
    assert not list(tmp_path.iterdir())


def test_a_run_that_was_killed_in_its_first_line_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "x.bench").mkdir()
    (tmp_path / "x.bench" / RUN_FILE).write_text('{"format":"spectool-ben')
    assert run(*HISTORY, "-o", tmp_path / "x.bench").exit_code == 0
    assert len(read_run(tmp_path / "x.bench").blocks) == 1


def test_a_run_that_is_interrupted_before_it_goes_on_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    assert run(*HISTORY, "-o", tmp_path / "x.bench").exit_code == 0
    monkeypatch.setattr("spectool.measure.bench.run.load_prompts", interrupt)
    stopped = run(*HISTORY, "-o", tmp_path / "x.bench")
    assert stopped.exit_code == 130 and stopped.stderr.endswith("the same command continues from there.\n")


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("text")
    refused = error_of(run(*HISTORY, "-o", tmp_path))
    assert refused.endswith("exists and is not a run of `spectool bench`. Choose another -o")
    assert error_of(run(*HISTORY, "-o", tmp_path / "mine.txt")).endswith("Choose another -o")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
