"""What the core installation does without the optional packages, and what is said where one of them is missing."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

import spectool
from spectool import SpectoolError, require_extra
from spectool.runtime.demo_models import demo_path

ROOT = Path(__file__).resolve().parents[1]
TARGET, DRAFT = str(demo_path("target")), str(demo_path("draft"))
EXTRAS = spectool._EXTRAS
OPTIONAL = sorted({module for modules in EXTRAS.values() for module in modules})

CORE = [
    "build-dict --tokenizer TARGET --corpus pl.txt -o pl.dict",
    "generate --model TARGET --draft-model DRAFT -p Wczoraj -m 4",
    "bench --model TARGET --drafter dict=pl.dict --prompts pl --count 1 --tokens 8 --ignore-eos -o pl.bench",
]
NEEDY = {
    "lab fairness --target TARGET --draft d=DRAFT --task pl=pl.txt --task uk=pl.txt -o f": "lab",
    "build-dict --tokenizer TARGET --corpus pl.parquet -o p.dict": "parquet",
    "build-dict --tokenizer TARGET --corpus pl.txt.zst -o z.dict": "parquet",
}
RUN = """
import json, shlex, sys
from importlib.machinery import PathFinder
from click.testing import CliRunner
hidden = json.loads(sys.argv[1])
class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else super().find_spec(name, path, target)
sys.meta_path = [Finder if finder is PathFinder else finder for finder in sys.meta_path]
from spectool.cli import main
done = [CliRunner().invoke(main, shlex.split(line)) for line in json.loads(sys.argv[2])]
print(json.dumps([[each.exit_code, each.stdout, each.stderr, repr(each.exception)] for each in done]))
"""


def test_the_converter_of_benchmarks_is_missed_before_anything_is_fetched(tmp_path: Path) -> None:
    hide = "import runpy, sys; sys.modules['gguf'] = None; sys.argv[1:] = ['smollm2-135m']"
    command = [sys.executable, "-c", f"{hide}; runpy.run_path('benchmarks/real_models.py', run_name='__main__')"]
    environment = {**os.environ, "SPECTOOL_MODELS": str(tmp_path / "models")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, env=environment)
    assert done.returncode == 1 and "pip install gguf" in done.stderr
    assert not (tmp_path / "models").exists()


def without_extras(lines: list[str], folder: Path) -> dict[str, tuple[int, str, str, str]]:
    """Run command lines in a process that finds no optional package; exit code, output, errors and exception."""
    real = [line.replace("TARGET", TARGET).replace("DRAFT", DRAFT) for line in lines]
    command = [sys.executable, "-c", RUN, json.dumps(OPTIONAL), json.dumps(real)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(lines, map(tuple, json.loads(done.stdout.splitlines()[-1])), strict=True))


@pytest.mark.nightly
def test_the_core_works_and_the_rest_names_its_extra(tmp_path: Path) -> None:
    (tmp_path / "pl.txt").write_text("Wczoraj wieczorem w domu kultury.\nWczoraj rano w domu.\n" * 8, encoding="utf-8")
    for name in ("pl.parquet", "pl.txt.zst"):
        (tmp_path / name).touch()
    found = without_extras([*CORE, *NEEDY], tmp_path)
    for line in CORE:
        code, stdout, stderr, exception = found[line]
        assert code == 0, f"{line}\n{stdout}\n{stderr}\n{exception}"
    for line, extra in NEEDY.items():
        code, stdout, stderr, _ = found[line]
        assert code == 1 and not stdout, line
        last = stderr.splitlines()[-1]
        assert last.startswith("Error: ") and f"pip install 'spectool[{extra}]'" in last, line
    assert re.search(r"pl\.dict +auto +1 +— +— +—", found[CORE[-1]][1]), "one prompt has no interval"


def test_the_packages_of_the_extras_are_no_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[^\w-]", line)[0] for line in project["dependencies"]}
    assert "mlx-lm" in names and not names & set(OPTIONAL)
    for extra, modules in EXTRAS.items():
        named = {re.split(r"[^\w-]", line)[0] for line in project["optional-dependencies"][extra]}
        assert set(modules) <= named, extra
    assert not [module for module in OPTIONAL if find_spec(module) is None], "the tests need them all"


def test_what_is_missing_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    require_extra("lab", "spectool lab tables")
    monkeypatch.setitem(sys.modules, "scipy", None)
    require_extra("parquet", "pl.parquet")
    with pytest.raises(SpectoolError, match=r"^spectool lab tables needs .*: pip install 'spectool\[lab\]'$"):
        require_extra("lab", "spectool lab tables")
