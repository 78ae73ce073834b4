"""What an installed package contains."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOT_SHIPPED = {"tests", "benchmarks", "docs", "experiments"}


def test_every_folder_of_the_package_is_listed() -> None:
    """`spectool.runtime.batching` was missing, so `spectool serve` failed unless the installation was editable."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if not tracked:
        pytest.skip("needs a git checkout")
    folders = {Path(module).parent for module in tracked.split()}
    shipped = {folder for folder in folders if not NOT_SHIPPED & set(folder.parts)}
    assert set(settings["packages"]) == {".".join(("spectool", *folder.parts)) for folder in shipped}


def test_the_command_that_builds_the_wheel_finds_the_tool() -> None:
    """Run here, ``python -m build`` finds our own package of this name."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (options,) = re.findall(r"`python (.*\bbuild)`", text)
    command = [sys.executable, *options.split(), "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("build "), done.stderr
