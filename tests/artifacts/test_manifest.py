"""The artifact contract: one damaged artifact for each named error."""

import json
import os
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spectool import ArtifactError, IncompleteArtifact, __version__
from spectool.artifacts.artifact import Artifact
from spectool.artifacts.manifest import read_manifest, verify_files

from ..running import run
from .small_artifact import DATA, build


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
    assert result.stderr == "Interrupted. No file was left half-written.\n"


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
        format, version, roles, again = "spectool-test", 3, ("target",), "Test again"

    class Other(Test):
        format = "other"

    class Newer(Test):
        version = 4

    class Pair(Test):
        roles = ("target", "draft")

    assert Test(artifact).manifest == read_manifest(artifact)
    Test(artifact).check()
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
