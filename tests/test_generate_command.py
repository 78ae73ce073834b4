"""The command ``generate``: what it refuses, and how it reads prompts."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from spectool.cli import main
from spectool.runtime.demo_models import demo_path


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_only_finite_numbers(value: str) -> None:
    result = CliRunner().invoke(main, ["generate", "--model", "x", "--prompt", "y", "--temp", value])
    assert result.exit_code == 2
    assert "is not a finite number" in result.output or "is not in the range" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompt", ""], "--prompt: expected a prompt, got nothing"),
        (["--prompt", "a\udcff"], "--prompt: not UTF-8 at byte 1"),
        (["--prompt", "a", "--json", "--show-drafts"], "leave out --show-drafts"),
        (["--prompt", "a"], "no such directory"),
    ],
)
def test_generate_refuses(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["generate", "--model", "/nowhere", *arguments])
    assert result.exit_code in (1, 2)
    assert message in result.output


def test_a_prompt_file_loses_its_mark_and_one_line_end(tmp_path: Path) -> None:
    plain, marked = tmp_path / "plain", tmp_path / "marked"
    plain.write_bytes(b"Wczoraj")
    marked.write_bytes("\ufeffWczoraj\n".encode())
    model = str(demo_path("target"))
    texts = [
        json.loads(CliRunner().invoke(main, ["generate", "--model", model, "-m", "5", "--json", *given]).stdout)["text"]
        for given in (["--prompt", "Wczoraj"], ["--prompt-file", str(plain)], ["--prompt-file", str(marked)])
    ]
    assert texts[0] == texts[1] == texts[2]
