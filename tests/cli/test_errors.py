"""Errors are one line that helps, exit with 1, and leave nothing behind."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spectool.tests.artifacts.parts import edit_manifest
from spectool.tests.running import TOKENIZER, error_of, process, run


def test_errors_are_one_line(tmp_path: Path, work: Path) -> None:
    build = ["build-dict", "--tokenizer", TOKENIZER, "--corpus", "sample:pl", "-o"]
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for command, said in (
        (
            ["build-dict", "--tokenizer", tmp_path / "gone", *build[3:], tmp_path / "x.dict"],
            "no such file or directory",
        ),
        ([*build[:3], "--corpus", "sample:xx", "-o", tmp_path / "x.dict"], "sample:xx: no such sample"),
        ([*build, tmp_path / "file" / "x"], "is not a writable directory"),
        (
            ["predict", "--dict", work / "x.align", *build[1:5]],
            "is a spectool-alignment, expected a spectool-dictionary",
        ),
        (["inspect", tmp_path / "empty"], "no tokenizer.json in this directory"),
    ):
        assert said in error_of(run(*command))
    assert not (tmp_path / "x.dict").exists()


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = process("--debug", "inspect", tmp_path / "gone.dict")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "spectool.ArtifactError" in done.stderr
    plain = process("inspect", tmp_path / "gone.dict")
    assert plain.returncode == 1
    assert plain.stderr.startswith(f"Error: {tmp_path / 'gone.dict'}: no such file")
    assert len(plain.stderr.splitlines()) == 1


def test_whatever_a_manifest_holds_is_shown(work: Path, tmp_path: Path) -> None:
    shutil.copy(work / "uk.dict", tmp_path / "x.dict")
    deep: dict[str, object] = {}
    for _ in range(400):
        deep = {"a_b": deep}
    arguments = {"deep": [deep], "huge": 10**12, "none": None, "list": [[1.5, True], {}], "": ""}
    edit_manifest(tmp_path / "x.dict", lambda manifest: manifest.update(arguments=arguments))
    shown = run("inspect", tmp_path / "x.dict")
    assert shown.exit_code == 0, shown.output
    assert "list 1.5, yes, none" in shown.stdout and "deep a b (a b (…))" in shown.stdout
    edit_manifest(tmp_path / "x.dict", lambda manifest: manifest.update(statistics={}))
    assert "again" in error_of(run("inspect", tmp_path / "x.dict"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full here")
def test_a_system_error_is_one_line(work: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "spectool.cli", "inspect", str(work / "x.align")]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: No space left on device. Check the disk")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.nightly
def test_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spectool.cli", "build-dict", "--tokenizer", TOKENIZER]
    command += ["--corpus", "sample:uk", "-o", str(tmp_path / "x.dict")]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    while running.stderr.readline() != "counting 2-grams\n":
        pass
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in errors
    assert errors.endswith("Interrupted.\n")
    assert list(tmp_path.iterdir()) == []


# Arguments are checked before anything dear is read: an error names them, although the models are damaged as well.


def damaged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to a folder with a damaged model, BAD, and a file of the user's, taken."""
    monkeypatch.chdir(folder)
    Path("taken").write_text("something of the user's")
    Path("BAD").mkdir()
    for name in ("tokenizer.json", "config.json", "model.safetensors"):
        Path("BAD", name).write_text("{")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("build-dict --tokenizer BAD --corpus sample:pl -o taken", "taken: exists and is not a whole artifact"),
        ("build-dict --tokenizer BAD --corpus gone.txt", "gone.txt"),
        ("prune-draft --draft BAD --corpus sample:pl -o taken", "taken: exists already"),
        ("predict --model BAD --here --corpus sample:pl --dict gone", "gone: no such file"),
        ("doctor --model BAD --draft-model ./gone", "./gone: no such directory"),
        ("generate --model BAD -p a --json-schema gone", "No such file or directory: 'gone'"),
        ("serve --model BAD --adapter-path nope", "nope: expected a LoRA adapter"),
        ("inspect gone", "gone: no such file or directory"),
        ("inspect ~nobody/gone", "~nobody/gone: no such file or directory"),
        ("build-dict --tokenizer BAD --pack pl --max-bytes 0", "'0' is out of range"),
        ("build-dict --tokenizer BAD --pack pl --max-bytes 99999999999TB", "'99999999999TB' is out of range"),
        ("setup BAD --language pl --corpus gone.txt", "gone.txt"),
    ],
)
def test_what_is_cheap_to_check_is_checked_first(
    command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged(tmp_path, monkeypatch)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: f"{tmp_path}/cache/{name}")
    result = run(*command.split())
    assert result.exit_code in (1, 2) and message in result.stderr, result.output
    assert "BAD" not in result.stderr.splitlines()[-1]
    assert sorted(path.name for path in Path().iterdir()) == ["BAD", "taken"]


@pytest.mark.parametrize(
    "command",
    [
        "build-dict --tokenizer BAD --corpus sample:pl",
        "align --draft BAD --target BAD --corpus sample:pl",
        "doctor --model BAD",
        "setup BAD --language pl",
    ],
)
def test_a_cache_that_cannot_be_written_is_found_first(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged(tmp_path, monkeypatch)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: f"{tmp_path}/taken/{name}")
    result = run(*command.split())
    assert result.exit_code == 1 and "BAD" not in result.stderr
    assert f"{tmp_path}/taken/spectool/" in result.stderr
    assert "cannot be written" in result.stderr or "cannot be saved" in result.stderr
