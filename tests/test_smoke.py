"""One small run of every command, in this process, on the bundled models: the whole path holds together."""

import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from openai import OpenAI

from spectool.cli import main
from spectool.runtime.demo_models import demo_path
from spectool.tests.serve.servers import serving

TARGET, OTHER = (str(demo_path(part)) for part in ("target", "other"))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smoke")
    for language in ("pl", "uk"):
        (folder / f"{language}.txt").write_text("\n".join(["Wczoraj wieczorem w domu kultury.", "Учора ввечері."] * 8))
    return folder


def run(work: Path, line: str, **options: Any) -> str:
    """Run a command line in which W stands for the folder; return what it printed."""
    result = CliRunner().invoke(main, [part.replace("W/", f"{work}/") for part in line.split()], **options)
    assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception!r}"
    return result.output


# In an order in which each finds what it needs.
COMMANDS = {
    "build-dict": (f"--tokenizer {TARGET} --corpus sample:pl --max-bytes 14KB -o W/pl.dict", "bytes"),
    "pack": ("W/pl.txt --language pl -o W/pl.pack", "bytes"),
    "inspect": ("W/pl.dict --lookup w", "proposal"),
    "align": (f"--draft {OTHER} --target {TARGET} --corpus W/pl.txt -o W/pair.align", "this pair is"),
    "prune-draft": (f"--draft {demo_path('draft')} --corpus W/pl.txt -o W/small", "ids to cover"),
    "doctor": (f"--model {TARGET} --seconds 0.2", "must be right"),
    "predict": ("--dict W/pl.dict --corpus W/uk.txt", "tokens_per_pass|tokens per pass"),
    "generate": (f"--model {TARGET} --dict W/pl.dict -p Wczoraj --max-tokens 8", "tokens per second"),
    "chat": (f"--model {TARGET} --max-tokens 4", None),
    "bench": (
        f"--model {TARGET} --drafter history --prompts pl --count 2 --tokens 12 --ignore-eos -o W/pl.bench",
        "report.md",
    ),
    "demo": ("", r"\d+ tokens in \d\d passes [\s\S]+Without drafts, it took \d+ passes to write the same text"),
    "serve": ("", None),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_runs(work: Path, name: str) -> None:
    line, expected = COMMANDS[name]
    if expected is not None:
        assert re.search(expected, run(work, f"{name} {line}"))
    elif name == "chat":
        refused = CliRunner().invoke(main, [name, *line.split()], input="Wczoraj\n")
        assert refused.exit_code == 1 and "no chat template" in refused.stderr
    else:
        with serving() as server:
            answers = OpenAI(base_url=f"{server.url}/v1", api_key="none").completions
            assert answers.create(model=TARGET, prompt="Wczoraj", max_tokens=8).choices[0].text


def test_no_command_is_left_out() -> None:
    elsewhere = ("lab", "setup")  # what `setup` makes would be found by other tests
    assert sorted([*COMMANDS, *elsewhere]) == main.list_commands(click.Context(main))
