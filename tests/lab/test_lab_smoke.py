"""One small run of every command of the laboratory, in this process, on the bundled models."""

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from spectool.build.alignment.stage import build_alignment
from spectool.cli import lab, main
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.tests.measure.bench.runs import drawn_blocks, write_run
from spectool.tokenization.opening import open_tokenizer

TARGET, DRAFT, OTHER = (str(demo_path(part)) for part in ("target", "draft", "other"))
STEPS = "--size 1m --step-tokens 128 --length 32 --steps 4"
TUNE = "--corpus uk=sample:uk --length 24 --batch 2 --valid-rows 4 --steps 2 --measure-every 2"
COMMANDS = {
    "sweep": ("W/grid.toml -o W/sweep", "tokens.per.pass"),
    "fairness": (
        f"--target {TARGET} --draft d={DRAFT} --task pl=W/pl.txt --task uk=W/uk.txt --rows 4 --length 16 -o W/f",
        "pl",
    ),
    "ngrams": (
        f"--draft {OTHER} --target {TARGET} --count-on W/pl.txt --corpus W/uk.txt --alignment W/x.align",
        "tokens per pass",
    ),
    "tables": ("W/pl.bench", "Acceptance"),
    "train-draft": (f"--tokenizer {TARGET} --corpus sample:pl {STEPS} -o W/draft", "bits"),
    "tune-draft": (f"--draft {DRAFT} --target {TARGET} {TUNE} -o W/tuned", "D_T before"),
}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smoke")
    (folder / "grid.toml").write_text(
        f'[tokenizers]\ntarget = "{TARGET}"\n[languages.pl]\nbuild = "sample:pl"\nreplay = "sample:uk"\n'
        "[dictspec]\nentries = [200]\n"
    )
    for language in ("pl", "uk"):
        (folder / f"{language}.txt").write_text("\n".join(["Wczoraj wieczorem w domu kultury.", "Учора ввечері."] * 8))
    write_run(folder / "pl.bench", drawn_blocks())
    sides = open_tokenizer(OTHER), open_tokenizer(TARGET)
    build_alignment(*sides, open_corpus("sample:pl"), folder / "x.align", lambda step: None, sample=0)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_runs(work: Path, name: str) -> None:
    line, expected = COMMANDS[name]
    result = CliRunner().invoke(main, ["lab", name, *(part.replace("W/", f"{work}/") for part in line.split())])
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    assert re.search(expected, result.output)


def test_no_command_is_left_out() -> None:
    assert sorted(COMMANDS) == lab.list_commands(click.Context(lab))
