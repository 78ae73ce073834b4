"""What all artifacts have in common: manifests, formats, versions, and what may be replaced."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spectool import ArtifactError, __version__
from spectool.artifacts.artifact import read_manifest, require_replaceable

from ..running import error_of, run
from .parts import Parts, edit_manifest
from .small_artifact import SIDE, Small, build


def test_what_is_written_is_read(artifact: Path) -> None:
    manifest = read_manifest(artifact)
    assert manifest == build(artifact)
    assert (manifest.format, manifest.version, manifest.tool) == ("spectool-test", 3, f"spectool {__version__}")
    assert manifest.arguments == {"a": "", "b": 1}
    assert manifest.inputs == {"corpus": "ż"}
    assert manifest.fingerprints == {"target": "0" * 64}
    opened = Small(artifact)
    assert {name: values.tolist() for name, values in opened.file.arrays.items()} == {
        "wide": [1, 2, 3],
        "bytes": [7] * 5,
        "none": [],
    }
    assert [path.name for path in artifact.parent.iterdir()] == ["x.test"], "nothing is left beside it"


def test_two_builds_are_the_same_bytes(tmp_path: Path) -> None:
    build(tmp_path / "a")
    build(tmp_path / "new" / "folders" / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "new" / "folders" / "b").read_bytes()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "{}", '{"format": "x"}', "[" * 100_000, "{,}"])
def test_damaged_manifests(artifact: Path, text: str) -> None:
    artifact.write_bytes(Parts.of(artifact).to_bytes(text))
    with pytest.raises(ArtifactError, match=r"x\.test: not a manifest of spectool \(.*Build the artifact again"):
        read_manifest(artifact)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.update(format=7), "'format' of the manifest: expected str, got int"),
        (lambda m: m.update(version="3"), "'version' of the manifest: expected int, got str"),
        (lambda m: m.update(version=True), "'version' of the manifest: expected int, got bool"),
        (lambda m: m.update(tool=None), "'tool' of the manifest: expected str"),
        (lambda m: m.update(statistics=[]), "'statistics' of the manifest: expected dict, got list"),
        (lambda m: m.update(surprise=1), "statistics, tool, got others or none: surprise)"),
        (lambda m: m.pop("inputs"), "got others or none: inputs)"),
        (lambda m: m["tokenizers"]["target"].update(size="9"), "'size' of tokenizer 'target': expected int, got str"),
        (lambda m: m["tokenizers"]["target"].pop("fingerprint"), "'fingerprint' of tokenizer 'target'"),
        (lambda m: m["tokenizers"].update(target=None), "'name' of tokenizer 'target'"),
        (lambda m: m["tokenizers"]["target"].update(size=-1), "a negative size"),
        (lambda m: m["tokenizers"]["target"].update(size=10**400), "no number of 64 bits"),
        (lambda m: m["tokenizers"]["target"].update(size=2**63), "no number of 64 bits"),
        (lambda m: m["tokenizers"]["target"].update(name="\ud800"), "surrogates not allowed"),
        (lambda m: m["statistics"].update(x=float("nan")), "NaN is no number of 64 bits"),
        (lambda m: m["statistics"].update(x=float("inf")), "Infinity is no number of 64 bits"),
        (lambda m: m["inputs"].update(packs="pl.pack"), "'packs' of the inputs: expected list, got str"),
        (lambda m: m["inputs"].update(documents="many"), "'documents' of the inputs: expected int, got str"),
    ],
)
def test_wrong_manifests(artifact: Path, change: Callable[[dict[str, Any]], object], reason: str) -> None:
    edit_manifest(artifact, change)
    with pytest.raises(ArtifactError, match="not a manifest of spectool") as caught:
        read_manifest(artifact)
    assert reason in str(caught.value)


def test_other_formats_versions_and_roles(artifact: Path) -> None:
    class Other(Small):
        format = "other"

    class Newer(Small):
        version = 4

    class Pair(Small):
        roles = ("target", "draft")

    with pytest.raises(ArtifactError, match=r"is a spectool-test, expected a other\. `spectool inspect "):
        Other(artifact)
    with pytest.raises(ArtifactError, match=r"version 3 .*reads version 4"):
        Newer(artifact)
    with pytest.raises(ArtifactError, match=r"x\.test: its manifest names no draft tokenizer\. Test again"):
        Pair(artifact)
    assert "unknown format 'spectool-test'" in error_of(run("inspect", artifact))


def test_an_artifact_replaces_one_of_its_kind(artifact: Path) -> None:
    build(artifact, last=9)
    assert Small(artifact).file.arrays["wide"].tolist() == [1, 2, 9]
    require_replaceable(artifact, Small.format, {"target": "0" * 64})
    require_replaceable(artifact.with_name("new"), Small.format, {})


def test_nothing_else_is_replaced(artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    (tmp_path / "folder").mkdir()
    for out in (tmp_path / "thesis.txt", tmp_path / "folder"):
        with pytest.raises(ArtifactError, match=rf"{out.name}: exists and is not a whole artifact.*another -o"):
            build(out)
    for sides in ({"target": SIDE | {"fingerprint": "b" * 64}}, {}):
        with pytest.raises(ArtifactError, match=r"is a spectool-test for t, not replaced .*another -o"):
            build(artifact, tokenizers=sides)
    with pytest.raises(ArtifactError, match=r"is a spectool-test for t, not replaced by a other for another"):
        require_replaceable(artifact, "other", {"target": "0" * 64})
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    assert Small(artifact).file.arrays["wide"].tolist() == [1, 2, 3]
