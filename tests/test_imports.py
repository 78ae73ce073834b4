"""What stays unloaded: mlx outside the runtime's models, heavy libraries until they are needed."""

import subprocess
import sys
from pathlib import Path

import pytest

from spectool.runtime.demo_models import demo_path

TOKENIZER = str(demo_path("target") / "tokenizer.json")
OTHER = str(demo_path("other") / "tokenizer.json")
HEAVY = ("mlx", "mlx_lm", "transformers", "torch")


def loaded_by(code: str, cwd: Path | None = None) -> set[str]:
    """Run code in a fresh interpreter and return the top-level modules it has imported."""
    report = "\nimport sys\nprint('LOADED', *{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("LOADED")[2].split())


def command(*arguments: str) -> str:
    """Code that runs a command as the console script does, and goes on after it."""
    return (
        "from spectool.cli import main\n"
        f"try:\n    main({list(arguments)!r}, prog_name='spectool')\n"
        "except SystemExit as end:\n    assert not end.code, end.code"
    )


def test_importing_is_light() -> None:
    assert not loaded_by("import spectool.runtime, spectool.cli, spectool.commands.generate") & set(HEAVY)


@pytest.mark.parametrize("arguments", [["--help"], ["generate", "--help"]])
def test_help_needs_no_numpy(arguments: list[str]) -> None:
    assert not loaded_by(command(*arguments)) & {*HEAVY, "numpy"}


def test_offline_rooms_need_no_models() -> None:
    walk = "import pkgutil, spectool.{0} as room\nfor found in pkgutil.walk_packages(room.__path__, '{0}.'):"
    walk += "\n    __import__('spectool.' + found.name)\n"
    every = "".join(map(walk.format, ("artifacts", "build", "corpora", "tokenization")))
    assert not loaded_by(every) & set(HEAVY)


def test_drafters_need_no_models() -> None:
    drafting = "decoding.statistics drafters.history policy.policy drafters.lookup drafters.translated loading"
    modules = [f"runtime.{module}" for module in (*drafting.split(), "translation.byte_aligned")]
    modules += ["lab.ngram_model", "lab.strategies", "measure.bench.results", "measure.replay"]
    assert not loaded_by("\n".join(f"import spectool.{module}" for module in modules)) & {"mlx", "mlx_lm"}


def test_drafting_needs_no_arrow() -> None:
    """Importing pyarrow takes more memory than a dictionary may."""
    modules = "spectool.artifacts.dictionary, spectool.artifacts.alignment, spectool.runtime.loading"
    assert not loaded_by(f"import {modules}") & {"pyarrow"}


def test_the_check_can_fail() -> None:
    assert loaded_by("import mlx.core") >= {"mlx"}


def test_help_is_light() -> None:
    ours = ("build-dict", "align", "generate", "predict", "demo", "bench")
    labs = ("train-draft", "tune-draft", "fairness", "sweep", "ngrams")
    every = [["--help"], ["--version"], *([name, "--help"] for name in ours)]
    every += [["lab", name, "--help"] for name in labs]
    assert not loaded_by("\n".join(command(*arguments) for arguments in every)) & set(HEAVY)


@pytest.mark.nightly
def test_offline_commands_need_no_models(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Dzień dobry, mówi Ola.\nDobry wieczór!\n", encoding="utf-8")
    build = ["build-dict", "--tokenizer", TOKENIZER, "--corpus", "sample:pl", "--max-bytes", "14KB", "-o", "pl.dict"]
    sides = ["--draft", OTHER, "--target", TOKENIZER]
    commands = [
        build,
        ["align", *sides, "--corpus", "text", "-o", "x.align"],
        ["predict", "--dict", "pl.dict", "--history", "--corpus", "sample:pl"],
        ["lab", "ngrams", *sides, "--alignment", "x.align", "--count-on", "text", "--corpus", "text"],
        ["inspect", "pl.dict", "--lookup", "w"],
        ["inspect", "x.align"],
        ["inspect", TOKENIZER],
    ]
    for arguments in commands:
        assert not loaded_by(command(*arguments), tmp_path) & {"mlx", "mlx_lm"}, arguments
    assert not loaded_by(command("inspect", "pl.dict", "--lookup", "w"), tmp_path) & {"pyarrow", "tqdm", "transformers"}
