"""The command line explains itself: help, examples, names, and what is wrong with the usage."""

import re

import click
import pytest

from spectool import __version__
from spectool.cli import _PURPOSES, main
from spectool.tests.running import TOKENIZER, run

COMMANDS = [
    *("align", "bench", "build-dict", "chat", "demo", "doctor", "generate"),
    *("inspect", "lab", "pack", "predict", "prune-draft", "serve", "setup"),
]


def test_help_lists_every_command() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert sorted(main.list_commands(click.Context(main))) == COMMANDS
    for name in COMMANDS:
        assert re.search(rf"^  {name}  +[A-Z]", result.output, re.MULTILINE), name
    assert sorted(name for names in _PURPOSES.values() for name in names) == COMMANDS
    assert all(f"\n{purpose}:" in result.output for purpose in _PURPOSES)
    assert run("-h").output == result.output
    assert run("--version").output == f"spectool, version {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert re.search(rf"Examples?:\n +spectool {name}\b", result.output), result.output
    command = main.get_command(click.Context(main), name)
    assert command is not None
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert parameter.help.endswith("."), parameter.help
    known = {option for parameter in command.params for option in parameter.opts}
    for line in re.findall(rf"^ *spectool {name} .*", command.help or "", re.MULTILINE):
        assert name == "lab" or set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", line)) <= known, line


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["build-dict", "--tokenizer", TOKENIZER, "--corpus", "sample:pl", "--max-bytes", "much"],
        ["inspect", TOKENIZER, "--lookup", "kot"],
        ["generate", "--prompt", "x"],
        ["demo", "doctor", "--max-tokens", "0"],
    ],
)
def test_usage_errors_exit_with_2(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("Usage: ")
    assert "Error: " in result.stderr


def test_one_thing_has_the_same_names_in_every_command() -> None:
    """Who knows a model as --target, a draft as --draft-model, or a tokenizer by its model need not look it up."""
    together = ({"--model", "--target"}, {"--draft", "--draft-model"})
    for name in main.list_commands(click.Context(main)):
        command = main.get_command(click.Context(main), name)
        assert command is not None
        for names in [set(parameter.opts) for parameter in command.params]:
            expected = [{"--model"}] if "--tokenizer" in names else [pair for pair in together if names & pair]
            assert all(each <= names for each in expected), f"{name}: {sorted(names)}"
