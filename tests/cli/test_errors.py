"""Errors are one line that helps, exit with 1, and leave nothing behind."""

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spectool.tests.artifacts.parts import edit_manifest
from spectool.tests.running import TOKENIZER, error_of, process, run


def test_errors_are_one_line(tmp_path: Path, work: Path) -> None:
    out = tmp_path / "x.dict"
    missing = tmp_path / "gone"
    build = ["build-dict", "--tokenizer", TOKENIZER, "--corpus", "sample:pl", "-o"]
    (tmp_path / "file").write_text("x")
    assert "no such file or directory" in error_of(run("build-dict", "--tokenizer", missing, "--corpus", "sample:pl"))
    assert "sample:xx: no such sample" in error_of(run(*build[:3], "--corpus", "sample:xx", "-o", out))
    assert "exists and is not a whole artifact" in error_of(run(*build, tmp_path / "file"))
    assert "is not a writable directory" in error_of(run(*build, tmp_path / "file" / "x"))
    assert "no such file" in error_of(run("inspect", missing))
    assert "no such file" in error_of(run("predict", "--dict", missing, "--corpus", "sample:pl"))
    assert "is a spectool-alignment, expected a spectool-dictionary" in error_of(
        run("predict", "--dict", work / "x.align", "--corpus", "sample:pl", "--tokenizer", TOKENIZER)
    )
    (tmp_path / "empty").mkdir()
    assert "no tokenizer.json in this directory" in error_of(run("inspect", tmp_path / "empty"))
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert "no tokenizer.json in this directory" in error_of(run("inspect", tmp_path))
    assert not out.exists()


def test_a_folder_with_the_name_of_an_option_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(Path(TOKENIZER).parent, "draft")
    refused = error_of(run("prune-draft", "--draft", "draft", "--corpus", "sample:pl", "-o", "draft"))
    assert refused.startswith("Error: draft: exists already")


def test_a_tokenizer_that_has_moved(tmp_path: Path) -> None:
    shutil.copyfile(TOKENIZER, tmp_path / "t.json")
    build = ("build-dict", "--tokenizer", tmp_path / "t.json", "--corpus", "sample:pl", "-o", tmp_path / "x.dict")
    assert run(*build, "--max-bytes", "14KB").exit_code == 0
    (tmp_path / "t.json").unlink()
    emulate = ("predict", "--dict", tmp_path / "x.dict", "--corpus", "sample:pl")
    assert "Give the dictionary's tokenizer with --tokenizer" in error_of(run(*emulate))
    shown = run("inspect", tmp_path / "x.dict")
    assert shown.exit_code == 0
    assert "no entries are shown" in shown.stderr and "sample entries" not in shown.stdout
    assert run(*emulate, "--tokenizer", TOKENIZER).exit_code == 0
    assert run("inspect", tmp_path / "x.dict", "--tokenizer", TOKENIZER).stderr == ""


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
    assert errors.endswith("Interrupted. No file was left half-written.\n")
    assert list(tmp_path.iterdir()) == []


def test_a_mistyped_command_gets_a_suggestion() -> None:
    result = run("bild-dict")
    assert result.exit_code == 2 and re.search("Did you mean .*'build-dict'", result.stderr)
