"""``spectool bench``: drafters and prompts as options, and refusals."""

from pathlib import Path

import pytest

from spectool.commands.bench import drafter_of
from spectool.lab.paper_tables.reading import read_run
from spectool.measure.bench.results import PLAIN
from spectool.runtime.demo_models import demo_path
from spectool.tests.measure.bench.recorded import TARGET
from spectool.tests.running import error_of, run

ONE = ("bench", "--model", TARGET, "--prompts", "pl", "--count", 1, "--tokens", 6)
HISTORY = (*ONE, "--drafter", "history")


def test_options_say_what_is_measured(tmp_path: Path) -> None:
    drafter = f"name=both,history,draft-model={demo_path('draft')}"
    more = ("--num-draft-tokens", 3, "--num-draft-tokens", "auto", "--temp", 0.8)
    done = run(*ONE, "--drafter", drafter, "--drafter", "history", *more, "-o", tmp_path / "x.bench")
    assert done.exit_code == 0, done.output
    assert "too short to tell whether drafting pays" in done.stdout and "--ignore-eos" in done.stdout
    found = read_run(tmp_path / "x.bench")
    assert [each.temperature for each in found.blocks] == [0.8]
    wanted = {(PLAIN, 0), *((name, k) for name in ("both", "history") for k in (3, None))}
    assert all(each.by_configuration.keys() == wanted for each in found.blocks)
    assert [(each.source, each.kind) for each in found.blocks] == [("pl", "encyclopaedic")]
    spec = found.options.drafters["both"]
    assert spec.sources["history"] is True and spec.sources["dictionary"] == []
    assert [*spec.command][-1] == "--no-dict"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((*ONE, "--drafter", "history,speed=2"), "Join options of `spectool generate` by commas"),
        ((*ONE, "--drafter", "dict="), "'--dict' requires an argument"),
        ((*ONE, "--drafter", "min-draft-prob=0.5"), "expected something that drafts"),
        ((*HISTORY[:-1], "alignment=x"), "name it with --draft-model"),
        ((*HISTORY[:-1], "dict=pl.dict,no-dict"), "expected something that drafts"),
        ((*HISTORY[:-1], "history,num-draft-tokens=2"), "No such option"),
        ((*ONE, "--drafter", "dict=auto"), "name what drafts instead of auto"),
        ((*HISTORY, "--drafter", "history"), "a name that none has yet, got 'history'. Add name=…"),
        ((*HISTORY, "--drafter", "name=plain,history"), "a name that none has yet, got 'plain'"),
        ((*HISTORY, "--num-draft-tokens", 65), "--num-draft-tokens"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, arguments: tuple[object, ...], expected: str) -> None:
    result = run(*arguments, "-o", tmp_path / "x.bench")
    assert result.exit_code == 2 and expected in result.stderr
    assert not list(tmp_path.iterdir())


def test_what_is_measured_is_what_the_command_of_the_page_drafts_with(tmp_path: Path) -> None:
    spec = drafter_of(["--history", "--min-draft-prob", "0.3"])
    assert spec.command == ("--history", "--min-draft-prob", "0.3", "--no-dict")
    assert run("generate", "--model", TARGET, *spec.command, "-p", "Most w", "-m", 2).exit_code == 0
    others = {"draft_model": None, "alignment": None, "min_probability": 0.3}
    assert spec.sources == {"dictionary": (), "history": True, **others}


def test_a_prompt_without_tokens_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spectool.measure.bench.run.ids_of_prompt", lambda prompt, tokenizer: [])
    assert "prompt pl-encyclopaedic-01: expected tokens" in error_of(run(*HISTORY, "-o", tmp_path / "x.bench"))
