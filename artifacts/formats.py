"""All formats of artifacts, each with the class that opens it."""

from pathlib import Path
from pkgutil import resolve_name

from spectool import ArtifactError
from spectool.artifacts.artifact import Artifact
from spectool.artifacts.manifest import Manifest, read_manifest, verify_files

FORMATS = {
    "spectool-dictionary": "spectool.artifacts.dictionary:Dictionary",
    "spectool-alignment": "spectool.artifacts.alignment:Alignment",
    "spectool-pruned-draft": "spectool.artifacts.pruned_draft:PrunedDraft",
}


def class_of(manifest: Manifest, path: Path) -> type[Artifact]:
    """The class that opens the artifact at ``path``, imported now.

    Raises:
        ArtifactError: Its format is unknown.
    """
    if manifest.format not in FORMATS:
        raise ArtifactError(f"{path}: unknown format {manifest.format!r}; expected one of {', '.join(FORMATS)}")
    found: type[Artifact] = resolve_name(FORMATS[manifest.format])
    return found


def verify_artifact(path: Path) -> Artifact:
    """The artifact at ``path`` after all checks: the checksums of its files, then every invariant of its format.

    Raises:
        ArtifactError: The first thing that is wrong.
    """
    manifest = read_manifest(path)
    kind = class_of(manifest, path)
    verify_files(path, manifest)  # first, because the reader would name a consequence
    artifact = kind(path)
    artifact.check()
    return artifact
