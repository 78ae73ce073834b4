"""``spectool bench``: drafters and prompts as options, and refusals."""

import shutil
from pathlib import Path

import mlx.core as mx
import pytest

from spectool.commands.shared.drafter_spec import drafter_of
from spectool.lab.paper_tables.reading import read_run
from spectool.measure.bench.results import PLAIN
from spectool.runtime.demo_models import demo_path
from spectool.tests.measure.bench.recorded import TARGET
from spectool.tests.running import figures, run

ONE = ("bench", "--model", TARGET, "--prompts", "pl", "--count", 1, "--tokens", 6)
HISTORY = (*ONE, "--drafter", "history")


@pytest.mark.nightly
def test_a_dictionary_is_found_by_its_name(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = work / "cache"
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(cache / name))
    for corpus in ("sample:pl", "sample:uk"):
        built = run("build-dict", "--tokenizer", TARGET, "--corpus", corpus, "--max-bytes", "14KB")
        assert built.exit_code == 0, built.output
    (pl,) = (cache / "spectool").glob("sample-pl*.dict")
    out = work / "named.bench"
    one = ("bench", "--model", TARGET, "--prompts", "pl", "--count", 1, "--tokens", 8, "--num-draft-tokens", 2)
    assert run(*one, "--drafter", f"dict={pl.name}", "-o", out).exit_code == 0
    written = run("generate", "--model", TARGET, "--dict", pl.stem, "-p", "Most w", "-m", 4)
    missing = run("generate", "--model", TARGET, "--dict", "nothing", "-p", "Most w")
    assert written.exit_code == 0, written.output
    assert "nothing: no such file" in missing.stderr


def test_options_say_what_is_measured(tmp_path: Path) -> None:
    drafter = f"name=both,history,draft-model={demo_path('draft')},verify=exact"
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
    assert spec.verify == "exact" and spec.sources["history"] is True and spec.sources["dictionary"] == []
    assert [*spec.command][-1] == "--no-dict"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((*ONE, "--drafter", "history,speed=2"), "Join options of `spectool generate` by commas"),
        ((*ONE, "--drafter", "dict="), "'--dict' requires an argument"),
        ((*ONE, "--drafter", "verify=exact"), "expected something that drafts"),
        ((*ONE, "--drafter", "alignment=x"), "expected something that drafts"),
        ((*HISTORY[:-1], "history,alignment=x"), "name it with --draft-model"),
        ((*HISTORY[:-1], "history,num-draft-tokens=2"), "give --num-draft-tokens to bench itself"),
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
    assert spec.sources == {
        **{"dictionary": (), "history": True, "draft_model": None},
        **{"alignment": None, "min_probability": 0.3},
    }


def test_a_model_that_only_repeats_itself_is_named_as_unfit(tmp_path: Path) -> None:
    model = Path(shutil.copytree(demo_path("target"), tmp_path / "stuck"))
    weights = mx.load(str(model / "model.safetensors"))
    zeros = {name: mx.zeros_like(weight) for name, weight in weights.items()}
    mx.save_safetensors(str(model / "model.safetensors"), zeros, {"format": "mlx"})  # the first token, for ever
    options = ("--model", model, "--prompts", "pl", "--count", 7, "--tokens", 16, "--ignore-eos")
    found = figures("bench", *options, "--drafter", "history", "-o", tmp_path / "x.bench")
    assert found["configurations"] == [] and "unfit for measuring" in found["verdict"]
    assert "7 of 7 prompts led to text that loops" in found["verdict"]
    page = (tmp_path / "x.bench" / "report.md").read_text(encoding="utf-8")
    assert "7 of 7 prompts" in page and "use it" not in page
