"""What an installed package contains."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOT_SHIPPED = {".ci", ".github", ".types", "tests", "benchmarks", "docs", "experiments"}


@pytest.mark.nightly
def test_the_wheel_has_every_file_of_the_package_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if not (listed := tracked.splitlines()):
        pytest.skip("needs a git checkout")
    for name in listed:
        if name.startswith(".types/"):  # a link to this folder
            continue
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    build = "import sys, setuptools.build_meta as backend; backend.build_wheel('dist')"
    done = subprocess.run([sys.executable, "-P", "-c", build], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    found = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    shipped = {path for path in map(Path, listed) if not NOT_SHIPPED & set(path.parts)} - {Path("lab", "README.md")}
    shipped = {path for path in shipped if len(path.parts) > 1 or path.suffix == ".py"}
    assert found == {f"spectool/{path.as_posix()}" for path in shipped}
    (stated,) = re.findall(r"wheel ([\d.]+) MB", (ROOT / "docs" / "installation.md").read_text(encoding="utf-8"))
    assert abs(wheel.stat().st_size / 1e6 - float(stated)) < 0.2


def test_the_command_that_builds_the_wheel_finds_the_tool() -> None:
    """Run here, ``python -m build`` finds our own package of this name."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (options,) = re.findall(r"`python (.*\bbuild)`", text)
    command = [sys.executable, *options.split(), "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("build "), done.stderr
