"""The artifact contract: one damaged artifact for each named error, and what a killed build leaves."""

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spectool import ArtifactError, IncompleteArtifact, __version__
from spectool.artifacts import Manifest, read_manifest
from spectool.artifacts.atomic import writing
from spectool.artifacts.manifest import Artifact, seal, verify_files

from ..running import run

DATA = bytes(range(256)) * 4


def build(out: Path, data: bytes = DATA, note: str = "") -> Manifest:
    """Write a small artifact."""
    with writing(out) as directory:
        (directory / "data.bin").write_bytes(data)
        (directory / "more.bin").write_bytes(b"more")
        tokenizers = {"target": {"name": "t", "fingerprint": "0" * 64, "size": 9}}
        manifest = Manifest("spectool-test", 3, {"b": 1, "a": note}, tokenizers, {"corpus": "ż"}, {"entries": 2})
        return seal(directory, manifest)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    build(tmp_path / "x.test")
    return tmp_path / "x.test"


def bind(path: Path) -> None:
    """Make a socket."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def edit(artifact: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest by hand."""
    file = artifact / "manifest.json"
    value = json.loads(file.read_text(encoding="utf-8"))
    change(value)
    file.write_text(json.dumps(value), encoding="utf-8")


def test_what_is_written_is_read(artifact: Path) -> None:
    manifest = read_manifest(artifact)
    assert manifest == build(artifact)
    assert (manifest.format, manifest.version, manifest.tool) == ("spectool-test", 3, f"spectool {__version__}")
    assert manifest.arguments == {"a": "", "b": 1}
    assert manifest.inputs == {"corpus": "ż"}
    assert manifest.total_bytes == len(DATA) + 4
    assert list(manifest.files) == ["data.bin", "more.bin"]
    verify_files(artifact, manifest)
    assert sorted(path.name for path in artifact.parent.iterdir()) == ["x.test"], "nothing is left beside it"


def test_two_builds_are_the_same_bytes(tmp_path: Path) -> None:
    build(tmp_path / "a")
    build(tmp_path / "b")
    for name in ("data.bin", "more.bin", "manifest.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"gone: no such artifact .*`spectool --help` lists the commands"):
        read_manifest(tmp_path / "gone")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtifactError, match="file: no such artifact"):
        read_manifest(tmp_path / "file")


def test_a_build_that_did_not_finish(artifact: Path) -> None:
    (artifact / "manifest.json").unlink()
    with pytest.raises(
        IncompleteArtifact, match=r"x\.test: no manifest\.json: the build did not finish, or .* Run the command"
    ):
        read_manifest(artifact)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '"x"', "{}", '{"format": "x"}', "[" * 100_000, '{"format": 1e999}', "\ud800"]
)
def test_damaged_json(artifact: Path, text: str) -> None:
    (artifact / "manifest.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ArtifactError, match=r"x\.test/manifest\.json: not a spectool manifest \(.*Build the artifact"):
        read_manifest(artifact)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.update(format=7), "'format' of the manifest: expected str, got int"),
        (lambda m: m.update(version="3"), "'version' of the manifest: expected int, got str"),
        (lambda m: m.update(version=True), "'version' of the manifest: expected int, got bool"),
        (lambda m: m.update(tool=None), "'tool' of the manifest: expected str"),
        (lambda m: m.update(statistics=[]), "'statistics' of the manifest: expected dict, got list"),
        (lambda m: m.update(files=["data.bin"]), "'files' of the manifest: expected dict"),
        (lambda m: m.update(surprise=1), "surprise"),
        (lambda m: m.pop("inputs"), "inputs"),
        (lambda m: m["files"].update({"data.bin": 5}), "'bytes' of file 'data.bin': expected int"),
        (lambda m: m["files"]["data.bin"].pop("sha256"), "'sha256' of file 'data.bin': expected str, got NoneType"),
        (lambda m: m["files"]["data.bin"].update(sha256=5), "'sha256' of file 'data.bin': expected str, got int"),
        (lambda m: m["files"]["data.bin"].update(bytes="1024"), "'bytes' of file 'data.bin': expected int, got str"),
        (lambda m: m["files"]["data.bin"].update(bytes=float("inf")), "Infinity is not a finite number"),
        (lambda m: m["tokenizers"]["target"].update(size="9"), "'size' of tokenizer 'target': expected int, got str"),
        (lambda m: m["tokenizers"]["target"].pop("fingerprint"), "'fingerprint' of tokenizer 'target'"),
        (lambda m: m["tokenizers"].update(target=None), "'name' of tokenizer 'target'"),
        (lambda m: m["tokenizers"]["target"].update(size=-1), "a negative size"),
        (lambda m: m["tokenizers"]["target"].update(size=10**400), "a number of 401 digits"),
        (lambda m: m["tokenizers"]["target"].update(size=2**63), "a number of 19 digits"),
        (lambda m: m["tokenizers"]["target"].update(sources=0.5), "'sources' of tokenizer 'target': expected list"),
        (lambda m: m["tokenizers"]["target"].update(sources=[[]]), "sources that are no text"),
        (lambda m: m["tokenizers"]["target"].update(name="\ud800"), "surrogates not allowed"),
        (lambda m: m["statistics"].update(x=float("nan")), "NaN is not a finite number"),
        (lambda m: m["inputs"].update(documents="many"), "'documents' of the inputs: expected int, got str"),
    ],
)
def test_wrong_types(artifact: Path, change: Callable[[dict[str, Any]], object], reason: str) -> None:
    edit(artifact, change)
    with pytest.raises(ArtifactError, match="not a spectool manifest") as caught:
        read_manifest(artifact)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/b", "..", ".", "", ".hidden", "a\x00", "a\n", "manifest.json"]
)
def test_unsafe_names(artifact: Path, name: str) -> None:
    edit(artifact, lambda m: m["files"].update({name: {"bytes": 1, "sha256": "0" * 64}}))
    with pytest.raises(ArtifactError, match=r"unsafe file entry .*file names must be plain"):
        read_manifest(artifact)


def test_a_negative_size(artifact: Path) -> None:
    edit(artifact, lambda m: m["files"]["data.bin"].update(bytes=-1))
    with pytest.raises(ArtifactError, match=r"unsafe file entry 'data\.bin' \(-1 bytes\)"):
        read_manifest(artifact)


def test_a_missing_file(artifact: Path) -> None:
    (artifact / "data.bin").unlink()
    with pytest.raises(ArtifactError, match=r"x\.test/data\.bin: missing, but the manifest names it"):
        read_manifest(artifact)


def test_a_changed_size(artifact: Path) -> None:
    (artifact / "data.bin").write_bytes(DATA[:-1])
    with pytest.raises(
        ArtifactError, match=r"x\.test/data\.bin: 1023 bytes, the manifest says 1024\. The copy was cut"
    ):
        read_manifest(artifact)


@pytest.mark.parametrize(
    "target", ["elsewhere", "/dev/zero", "nowhere", "x.test/data.bin", "x.test/manifest.json", "x.test"]
)
@pytest.mark.parametrize("name", ["data.bin", "manifest.json"])
def test_a_link_in_place_of_a_file(artifact: Path, tmp_path: Path, name: str, target: str) -> None:
    """To a file outside, to one without an end, to nothing, to itself and to a directory: it is not followed."""
    shutil.copy(artifact / name, tmp_path / "elsewhere")
    (artifact / name).unlink()
    (artifact / name).symlink_to(tmp_path / target)
    for look in (read_manifest, Artifact):
        with pytest.raises(ArtifactError, match=rf"x\.test/{name}: is a link, expected a plain file"):
            look(artifact)


@pytest.mark.parametrize(
    ("make", "kind"), [(Path.mkdir, "a directory"), (os.mkfifo, "a named pipe"), (bind, "a device or a socket")]
)
@pytest.mark.parametrize("name", ["data.bin", "manifest.json"])
def test_something_else_in_place_of_a_file(
    artifact: Path, name: str, make: Callable[[Path], object], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe that nobody writes to would be waited for without an end."""
    monkeypatch.chdir(artifact)  # a socket's path is short
    Path(name).unlink()
    make(Path(name))
    with pytest.raises(ArtifactError, match=rf"x\.test/{name}: is {kind}, expected a plain file"):
        read_manifest(artifact)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
@pytest.mark.parametrize("name", ["data.bin", "manifest.json"])
def test_a_file_that_may_not_be_read(artifact: Path, name: str) -> None:
    (artifact / name).chmod(0)
    with pytest.raises(PermissionError, match=name):
        verify_files(artifact, read_manifest(artifact))


def test_sizes_are_compared_before_anything_is_hashed(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hashlib.file_digest", None)
    os.truncate(artifact / "data.bin", 8 << 30)
    with pytest.raises(ArtifactError, match=r"data\.bin: 8589934592 bytes, the manifest says 1024\. The file was ch"):
        read_manifest(artifact)


def test_hashing_a_large_file_can_be_interrupted(artifact: Path) -> None:
    """A file that is as large as the manifest says takes its time, which Ctrl-C ends."""
    os.truncate(artifact / "data.bin", 64 << 30)  # minutes
    edit(artifact, lambda m: m["files"]["data.bin"].update(bytes=64 << 30))
    edit(artifact, lambda m: m.update(format="spectool-dictionary"))
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        result = run("verify", artifact)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "Interrupted. Nothing was left half-written.\n"


def test_a_flipped_byte(artifact: Path) -> None:
    (artifact / "data.bin").write_bytes(bytes([DATA[0] ^ 1]) + DATA[1:])
    manifest = read_manifest(artifact)  # sizes only: quick to open
    with pytest.raises(
        ArtifactError, match=r"x\.test/data\.bin: SHA-256 is [0-9a-f]{12}…, the manifest says [0-9a-f]{12}…"
    ):
        verify_files(artifact, manifest)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_stranger(artifact: Path, kind: str) -> None:
    stranger = artifact / "notes"
    stranger.mkdir() if kind == "folder" else stranger.write_text("x")
    with pytest.raises(ArtifactError, match=r"x\.test/notes: not named in manifest\.json\. Remove it"):
        verify_files(artifact, read_manifest(artifact))


def test_an_oversized_manifest(artifact: Path) -> None:
    with (artifact / "manifest.json").open("ab") as stream:
        stream.truncate(4 * 2**20 + 1)
    with pytest.raises(ArtifactError, match=r"manifest\.json: .*4,194,305 bytes, expected at most 4,194,304"):
        read_manifest(artifact)


def test_other_formats_versions_and_roles(artifact: Path) -> None:
    class Test(Artifact):
        format, versions, roles, again = "spectool-test", (3,), ("target",), "Test again"

    class Other(Test):
        format = "other"

    class Newer(Test):
        versions = (2, 4)

    class Pair(Test):
        roles = ("target", "draft")

    assert Test(artifact).manifest == read_manifest(artifact)
    Test(artifact).verify()
    with pytest.raises(
        ArtifactError, match=r"is a spectool-test, expected a other\. `spectool inspect .*` explains it"
    ):
        Other(artifact)
    with pytest.raises(
        ArtifactError, match=r"version 3 \(written by spectool .*reads version 4\. Test again with this version"
    ):
        Newer(artifact)
    with pytest.raises(ArtifactError, match=r"manifest\.json: names no draft tokenizer"):
        Pair(artifact)


def snapshot(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failing_build_leaves_the_old_artifact(artifact: Path, error: type[BaseException]) -> None:
    before = snapshot(artifact)
    with pytest.raises(error), writing(artifact) as directory:
        (directory / "data.bin").write_bytes(b"half")
        raise error
    assert snapshot(artifact) == before
    assert [path.name for path in artifact.parent.iterdir()] == ["x.test"]


def test_a_full_disk_names_the_artifact(artifact: Path) -> None:
    """Written by Python and by Arrow, whose errors name no file; others are left as they are."""
    before = snapshot(artifact)
    for error in (OSError(errno.ENOSPC, "No space left"), OSError(errno.EFBIG, "Error writing bytes to file. Detail")):
        with pytest.raises(ArtifactError, match=r"x.test: cannot be written .*run it again"), writing(artifact):
            raise error
        assert snapshot(artifact) == before
    for other in (OSError(errno.ENOSPC, "No space left", "elsewhere"), OSError(errno.EIO, "Input/output error")):
        with pytest.raises(OSError) as raised, writing(artifact):
            raise other
        assert raised.value is other


def test_a_build_without_a_manifest_is_a_defect(artifact: Path) -> None:
    before = snapshot(artifact)
    with pytest.raises(ArtifactError, match="ended without a manifest"), writing(artifact):
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


def test_no_directory_can_be_made_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(
        ArtifactError, match=r"file/x: cannot be written there \(.*file is no writable directory\)\. Choose another -o"
    ):
        build(tmp_path / "file" / "x")


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
    with pytest.raises(RuntimeError), writing(artifact):
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
        with writing(tmp_path / "pl.dict") as partial:
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
