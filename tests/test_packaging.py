"""What an installed package contains."""

import subprocess
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
