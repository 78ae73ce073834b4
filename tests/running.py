"""Commands run here or in a process of their own, what they print as JSON, and the one line of an error."""

import json
import subprocess
import sys
from typing import Any

from click.testing import CliRunner, Result

from spectool.cli import main
from spectool.runtime.demo_models import demo_path

TOKENIZER = str(demo_path("target") / "tokenizer.json")
OTHER = str(demo_path("other") / "tokenizer.json")


def run(*arguments: object, **options: Any) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], **options)


def figures(*arguments: object, **options: Any) -> dict[str, Any]:
    """Run the command with ``--json``; return what it prints."""
    result = run(*arguments, "--json", **options)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, as the console script does."""
    command = [sys.executable, "-m", "spectool.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def error_of(result: Result) -> str:
    """The one line of an error."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1
    assert result.stderr.endswith(lines[0] + "\n")
    assert "Traceback" not in result.output
    return lines[0]
