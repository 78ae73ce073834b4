"""Writing and replacing artifacts: what is refused, and what a failed or killed build leaves."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spectool import ArtifactError
from spectool.artifacts.atomic import atomic_directory, check_replaceable
from spectool.artifacts.manifest import Manifest, read_manifest, seal, verify_files

from .small_artifact import build


def snapshot(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failing_build_leaves_the_old_artifact(artifact: Path, error: type[BaseException]) -> None:
    before = snapshot(artifact)
    with pytest.raises(error), atomic_directory(artifact) as directory:
        (directory / "data.bin").write_bytes(b"half")
        raise error
    assert snapshot(artifact) == before
    assert [path.name for path in artifact.parent.iterdir()] == ["x.test"]


def test_a_full_disk_names_the_artifact(artifact: Path) -> None:
    """Written by Python, Arrow and NumPy, whose errors name no file; others are left as they are."""
    before = snapshot(artifact)
    for error in (
        OSError(errno.ENOSPC, "No space left"),
        OSError(errno.EFBIG, "Error writing bytes to file. Detail"),
        OSError("13791 requested and 4032 written"),
    ):
        with (
            pytest.raises(ArtifactError, match=r"x.test: cannot be written .*run it again"),
            atomic_directory(artifact),
        ):
            raise error
        assert snapshot(artifact) == before
    for other in (OSError(errno.ENOSPC, "No space left", "elsewhere"), OSError(errno.EIO, "Input/output error")):
        with pytest.raises(OSError) as raised, atomic_directory(artifact):
            raise other
        assert raised.value is other


def test_a_build_without_a_manifest_is_a_defect(artifact: Path) -> None:
    before = snapshot(artifact)
    with pytest.raises(ArtifactError, match="ended without a manifest"), atomic_directory(artifact):
        pass
    assert snapshot(artifact) == before


def test_replacing(artifact: Path) -> None:
    build(artifact, b"new")
    assert (artifact / "data.bin").read_bytes() == b"new"
    verify_files(artifact, read_manifest(artifact))
    assert [path.name for path in artifact.parent.iterdir()] == ["x.test"]


def test_a_new_artifact_in_new_folders(tmp_path: Path) -> None:
    build(tmp_path / "a" / "b" / "c")
    verify_files(tmp_path / "a" / "b" / "c", read_manifest(tmp_path / "a" / "b" / "c"))
    (tmp_path / "empty").mkdir()
    build(tmp_path / "empty")
    assert (tmp_path / "empty" / "data.bin").is_file()


def test_what_is_not_an_artifact_is_not_replaced(tmp_path: Path) -> None:
    foreign = tmp_path / "thesis"
    foreign.mkdir()
    (foreign / "chapter.txt").write_text("years of work")
    (tmp_path / "file").write_text("x")
    for out in (foreign, tmp_path / "file"):
        with pytest.raises(ArtifactError, match=r"exists and is not a spectool artifact\. Choose another -o"):
            build(out)
    (foreign / "manifest.json").write_text('{"name": "a web extension"}')
    with pytest.raises(ArtifactError, match=r"not a spectool manifest .*It is not replaced: choose another -o"):
        build(foreign)
    assert (foreign / "chapter.txt").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "thesis"]


def test_the_current_directory_is_not_replaced(artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (artifact, tmp_path / "new"):
        place.mkdir(exist_ok=True)
        monkeypatch.chdir(place)
        with pytest.raises(ArtifactError, match=r"is the current directory.* Choose another -o"):
            build(Path())


def test_no_directory_can_be_made_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(
        ArtifactError, match=r"file/x: cannot be written \(.*file is not a writable directory\)\. Choose another -o"
    ):
        build(tmp_path / "file" / "x")


def test_that_nothing_can_be_made_there_is_known_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in /proc, where permissions do not say so."""

    def refused(*_: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(os, "mkdir", refused)
    with pytest.raises(ArtifactError, match="is not a writable directory"):
        check_replaceable(tmp_path / "x")


def test_a_link_to_an_artifact_stays_a_link(artifact: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(artifact)
    for data in (b"one", b"two", b"three"):
        build(link, data)
    assert link.is_symlink()
    assert (artifact / "data.bin").read_bytes() == b"three"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "x.test"]


def dead_process() -> int:
    """Return the id of a process that has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_scratch_of_dead_processes_is_removed_and_no_other(artifact: Path) -> None:
    beside = artifact.parent
    dead = dead_process()
    gone = [f".x.test.{dead}.partial", f".x.test.{10**30}.partial"]
    kept = [
        f".x.test.{os.getppid()}.partial",  # a build that runs
        ".x.test.my-notes.partial",
        f".y.test.{dead}.partial",
        f".x.test.old.{dead}.partial",
        ".x.test.².partial",
    ]
    for name in (*gone, *kept):
        (beside / name).mkdir()
        (beside / name / "data.bin").write_text("half")
    build(artifact)
    assert sorted(path.name for path in beside.iterdir()) == sorted(["x.test", *kept])


def test_scratch_of_a_name_with_brackets_is_removed(tmp_path: Path) -> None:
    scratch = tmp_path / f".pl[1].dict.{dead_process()}.partial"
    scratch.mkdir()
    build(tmp_path / "pl[1].dict")
    assert not scratch.exists()


def test_an_artifact_that_was_moved_aside_comes_back(artifact: Path) -> None:
    """A build killed between its two renames: the old artifact lies in .previous."""
    before = snapshot(artifact)
    previous = artifact.with_name(".x.test.previous")
    artifact.rename(previous)
    with pytest.raises(ArtifactError, match=rf"x\.test: no such artifact.*whole: mv {previous} {artifact}"):
        read_manifest(artifact)
    with pytest.raises(RuntimeError), atomic_directory(artifact):
        raise RuntimeError
    assert snapshot(artifact) == before
    assert not previous.exists()


def test_a_previous_is_whole_even_if_its_removal_is_killed(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of an old artifact must never come back as OUT."""

    def killed(path: Path, **options: object) -> None:
        if path.exists():
            (path / "manifest.json").unlink(missing_ok=True)  # the first file is gone when the process is killed
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "rmtree", killed)
        build(artifact, b"new")
    shutil.rmtree(artifact)
    build(artifact, b"newer")
    assert (artifact / "data.bin").read_bytes() == b"newer"


def test_a_leftover_previous_is_dropped_when_the_new_one_is_there(artifact: Path) -> None:
    previous = artifact.with_name(".x.test.previous")
    shutil.copytree(artifact, previous)
    build(artifact, b"new")
    assert (artifact / "data.bin").read_bytes() == b"new"
    assert not previous.exists()


def test_an_artifact_of_another_tokenizer_is_not_replaced(tmp_path: Path) -> None:
    def write(fingerprint: str | None, content: bytes) -> None:
        sides = {} if fingerprint is None else {"target": {"name": "t", "fingerprint": fingerprint, "size": 3}}
        with atomic_directory(tmp_path / "pl.dict") as partial:
            (partial / "data.bin").write_bytes(content)
            seal(partial, Manifest("test", 1, {}, sides, {}, {}))

    write("a" * 64, b"first")
    for other in ("b" * 64, None):
        with pytest.raises(ArtifactError, match=r"pl.dict: is a test of target tokenizer aaaaaaaa….*another -o"):
            write(other, b"second")
        assert (tmp_path / "pl.dict" / "data.bin").read_bytes() == b"first"
        assert [path.name for path in tmp_path.iterdir()] == ["pl.dict"]
    write("a" * 64, b"third")
    assert (tmp_path / "pl.dict" / "data.bin").read_bytes() == b"third"
