"""Writing files and directories: what is refused, and what a failed or killed run leaves."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spectool import ArtifactError
from spectool.artifacts.atomic import atomic_directory, atomic_file, naming, require_new, require_writable


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_what_fails_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    (tmp_path / "x").write_text("old")
    with pytest.raises(error), atomic_file(tmp_path / "x") as partial:
        partial.write_text("half")
        raise error
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "old")]
    with pytest.raises(error), atomic_directory(tmp_path / "y") as folder:
        (folder / "data").write_text("half")
        raise error
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("write", [atomic_file, atomic_directory, naming])
def test_a_full_disk_names_the_file(tmp_path: Path, write: Callable[[Path], Any]) -> None:
    """Here it is a limit for files, at which the system refuses in the same way."""
    out, (soft, hard) = tmp_path / "x", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught, write(out) as partial:
            file = out if partial is None else partial / "data" if partial.is_dir() else partial
            file.write_bytes(bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(out)
    assert write is naming or list(tmp_path.iterdir()) == []


def test_links_stay_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for text in ("one", "two"):
        with atomic_file(tmp_path / "link") as partial:
            partial.write_text(text)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "two"


def test_a_directory_in_new_folders(tmp_path: Path) -> None:
    with atomic_directory(tmp_path / "a" / "b") as folder:
        (folder / "data").touch()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["data"]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_the_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with atomic_file(tmp_path / "x"):
        pass
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "plain").stat().st_mode


KILLED = """
import sys, time
from pathlib import Path
from spectool.artifacts.atomic import atomic_directory, atomic_file
make = {"file": atomic_file, "directory": atomic_directory}[sys.argv[1]]
with make(Path(sys.argv[2])) as partial:
    (partial / "data" if partial.is_dir() else partial).write_text("half")
    print(flush=True)
    time.sleep(600)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_a_killed_run_leaves_is_removed_by_the_next_one(tmp_path: Path, kind: str, sent: signal.Signals) -> None:
    out = tmp_path / "pl[1].dict"
    writing = subprocess.Popen([sys.executable, "-c", KILLED, kind, str(out)], stdout=subprocess.PIPE)
    assert writing.stdout is not None
    writing.stdout.readline()
    with atomic_file(out):
        assert len(list(tmp_path.iterdir())) == 2, "what is being written stays"
    out.unlink()
    writing.send_signal(sent)
    writing.wait()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".pl[1].dict.") and left.name.endswith(".partial")
    notes = tmp_path / ".pl[1].dict.notes.partial"
    notes.touch()
    os.utime(notes, (0, 0))
    with atomic_file(out):
        assert left.exists(), "it may be another run's"
    os.utime(left, (time.time() - 90_000,) * 2)
    with atomic_file(out):
        pass
    assert sorted(tmp_path.iterdir()) == [notes, out]


def test_what_is_there_is_not_replaced_by_a_directory(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    (tmp_path / "file").write_text("x")
    for out in (tmp_path / "thesis", tmp_path / "file"):
        with pytest.raises(ArtifactError, match=r"exists already\. Choose another -o"), atomic_directory(out):
            pass
    (tmp_path / "empty").mkdir()
    with atomic_directory(tmp_path / "empty") as folder:
        (folder / "data").write_text("x")
    assert (tmp_path / "empty" / "data").is_file()
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"


def test_nothing_can_be_made_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    for check in (require_new, require_writable):
        with pytest.raises(ArtifactError, match=r"file/x: cannot be written \(.*file is not a writable directory\)"):
            check(tmp_path / "file" / "x")
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ArtifactError, match=r"current directory.* Choose another -o"):
            check(Path())
