"""``spectool bench`` without a file: drafters and prompts as options, and refusals."""

from pathlib import Path

import pytest

from spectool.artifacts.benchmark import PLAIN, Benchmark
from spectool.runtime.demo_models import demo_path
from spectool.tests.measure.bench.recorded import TARGET, run

pytestmark = pytest.mark.system


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
    assert "nothing: no such artifact" in missing.stderr


def test_options_are_an_experiment_too(work: Path) -> None:
    out = work / "options.bench"
    spec = f"name=both,dict={work / 'pl.dict'},history,model={demo_path('draft')}"
    result = run(
        *("bench", "--model", TARGET, "--drafter", spec, "--prompts", "pl:list", "--count", 1, "--tokens", 6),
        *("--num-draft-tokens", 3, "--temp", 0.8, "-o", out),
    )
    assert result.exit_code == 0, result.output
    rows = Benchmark(out).generations.to_pylist()
    assert sorted((row["drafter"], row["num_draft_tokens"], row["kind"]) for row in rows) == [
        ("both", 3, "list"),
        (PLAIN, 0, "list"),
    ]


HISTORY = ("--model", TARGET, "--drafter", "history")


def test_a_misspelt_key_is_named_before_what_is_missing_for_it(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text('name = "x"\nprompst = []\n')
    result = run("bench", tmp_path / "e.toml", "-o", tmp_path / "x.bench")
    assert result.exit_code == 1 and "got prompst" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--drafter", "history"), "--drafter needs --model"),
        (("--model", TARGET, "--drafter", "speed=2"), "'speed=2': expected one of history"),
        (HISTORY, "no prompts: give --prompts"),
        (("--model", TARGET, "--prompts", "pl"), "--model needs --drafter"),
        ((*HISTORY, "--prompts", "pl", "--window", 64), "--window applies to prompts from a corpus"),
        (
            (*HISTORY, "--prompts", "pl", "--prompts", "uk", "--count", 1),
            "--count: expected at least one prompt of each source",
        ),
        ((*HISTORY, "--prompts", "pl:list", "--sample", 50), "pl:list: expected 50 prompts to draw, got 12"),
        (
            ("--model", TARGET, "--drafter", "history,verify=rejection", "--prompts", "pl"),
            "verify: expected a draft_model with rejection, got none",
        ),
        (("--model", TARGET, "--drafter", "align=x", "--prompts", "pl"), "expected something that drafts"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, arguments: tuple[object, ...], expected: str) -> None:
    result = run("bench", *arguments, "-o", tmp_path / "x.bench")
    assert result.exit_code != 0
    assert expected in result.stderr
    assert not list(tmp_path.iterdir())
